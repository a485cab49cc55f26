"""Evidence packs: what an audit rests on, without what names people, so that others can check it."""

from residuum.pack.verifying import Verification, verify
from residuum.pack.writing import Packed, pack
