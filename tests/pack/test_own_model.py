"""The pack of a request on the user's own network and data."""

import json
import zipfile

import torch
from safetensors.torch import load_file
from tests.request.conftest import MEAN, STD, HerNet, case  # noqa: F401 (a fixture)

from residuum import wrap
from residuum.pack import pack, verify
from residuum.pack.verifying import NOT_CHECKED
from residuum.request import AuditOptions


def her_model(path):
    net = HerNet()
    net.load_state_dict(load_file(path))
    return wrap(net, mean=MEAN, std=STD)


def test_a_request_on_an_own_network_is_packed_and_verified(case, tmp_path):  # noqa: F811
    request = case.request()
    done = request.unlearn(case.model, "gd:epochs=1", seed=1)
    proof = request.audit(case.model, done, AuditOptions(draws=10, taus=[0, 0.1]), controls=2, out=tmp_path / "run")
    packed = pack(proof, tmp_path / "evidence.zip", splits=request.splits)
    assert verify(packed.file).sound
    given = {"models": proof.folder, "splits": request.splits, "key": packed.key, "cells": 5, "number": 4}
    assert any("give load=" in text for text in verify(packed.file, **given).not_checked)
    found = verify(packed.file, **given, load=her_model)
    assert found.differences == []
    assert found.not_checked[1:] == NOT_CHECKED
    assert verify(packed.file, **given, load=lambda path: wrap(HerNet(), mean=MEAN, std=STD)).differences
    with zipfile.ZipFile(packed.file) as archive:
        manifest, packed_record = (json.loads(archive.read(f"{name}.json")) for name in ("manifest", "results"))
    assert packed_record["scenario"]["settings"]["data"]["name"] == "own data"
    assert manifest["data"]["trained_on"]["reference"]["size"] == 276
    assert manifest["request"]["size"] == 24
    assert torch.is_tensor(case.train.x)
