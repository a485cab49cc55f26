"""One page for each method, made from its docstring, its settings, and what was measured of it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from functools import cache
from pathlib import Path

from residuum.cli.listing import written
from residuum.core.components import METHODS
from residuum.studies import Study
from residuum.unlearning import Method
from website.pages import Page
from website.tables import BASELINES, SCENARIOS, measured, results, unbroken

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "methods" / "index.md"
NOTATION = """!!! note "Notation"
    `w` are the weights, `w_o` those of the original, and `h_w(x)` the logits. `S` is the training set, `S_f` the forget
    set, `S_r` the retain set. `CE` is the cross-entropy and `L(w, D)` its mean over a set `D`. `C` is the number of
    classes, `P` the number of weights."""


@cache
def names() -> list[str]:
    """Return the methods that ship with Residuum, in the order of the table in the guide."""
    return list(METHODS.built_in)


@cache
def pages() -> list[Page]:
    """Return a page for each method."""
    return [Page(f"methods/{name}.md", METHODS.find(name).title, text_of(METHODS.find(name))) for name in names()]


def text_of(method: type[Method]) -> str:
    """Return the page of a method: what it does, when to use it, example, settings, cost, what it leaves, reference."""
    about = Docstring.read(method)
    source = inspect.getsourcefile(method)
    assert source, f"expected a file that defines {method.name}"
    parts = [
        f"# {method.title} (`{method.name}`)",
        f"**{about.summary}**",
        "## What it does",
        about.body,
        "## When to use it",
        about.use,
        "## Example",
        _example(method),
        "## Settings",
        _settings(method),
        "## Cost",
        _cost(method.name),
        "## What it leaves behind",
        *_left_behind(method.name),
        _reading(),
        *(["## Notes on the literature", about.literature] if about.literature else []),
        "## Reference",
        about.reference,
        f"Source: [`unlearning/{Path(source).name}`](../../{Path(source).relative_to(ROOT).as_posix()}).",
        NOTATION,
    ]
    return "\n\n".join(parts) + "\n"


@dataclasses.dataclass(frozen=True)
class Docstring:
    """The parts of a method's docstring."""

    summary: str
    body: str
    use: str
    literature: str
    reference: str

    @classmethod
    def read(cls, method: type[Method]) -> Docstring:
        """Return the parts of a docstring, told apart by how their paragraphs begin."""
        summary, *paragraphs = (inspect.getdoc(method) or "").split("\n\n")
        parts = {"": [], "Use it": [], "Literature: ": [], "Reference: ": [], "Attributes:": [], ">>> ": []}  # type: ignore[var-annotated]
        for paragraph in paragraphs:
            start = next((start for start in parts if start and paragraph.startswith(start)), "")
            parts[start].append(paragraph)
        assert parts["Use it"], f"expected a paragraph 'Use it ...' in the docstring of {method.name}"
        assert parts["Reference: "], f"expected a line 'Reference: ...' in the docstring of {method.name}"
        literature = "\n\n".join(text.removeprefix("Literature: ") for text in parts["Literature: "])
        reference = " ".join(parts["Reference: "][0].removeprefix("Reference: ").split())
        return cls(
            summary,
            "\n\n".join(parts[""]),
            "\n\n".join(parts["Use it"]),
            literature.replace("(docs/reference/theory.md)", "([theory](../reference/theory.md#newton-removal-cr))"),
            re.sub(r"(https://\S+)", r"[\1](\1)", reference),
        )


def descriptions(owner: type) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of each attribute."""
    texts: dict[str, str] = {}
    for kind in reversed(owner.__mro__):
        section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        items = re.split(r"\n(?=    \w+: )", section) if kind is not object else []
        for item in filter(None, items):
            name, _, text = item.strip().partition(": ")
            texts[name] = " ".join(text.split())
    return texts


def _example(method: type[Method]) -> str:
    return f"""With your own model, in a [request](../get-started/quickstart.md):

```python
done = request.unlearn(model, "{method.name}", seed=1)
```

On the digits demo, with the settings that were measured below:

```sh
residuum run digits --methods {method.name}
```"""


@cache
def measured_settings(scenario: str, name: str) -> dict[str, object]:
    """Return the settings that a scenario gives a method, without those that have their default."""
    (row,) = Study.create(scenario, methods=name).rows
    defaults = METHODS.find(name)().settings
    return {key: value for key, value in row.settings.items() if defaults[key] != value}


def _settings(method: type[Method]) -> str:
    """Return a table of the method's own settings, and a folded one of those that come with its recipe and start."""
    owners, defaults = method.setting_owners(), method().settings
    softened = defaults.get("keep", 1.0) != 1.0  # then keep is what the method is about
    own = [name for name, owner in owners.items() if not _shared(owner) or (softened and name == "keep")]
    shared = [name for name in owners if name not in own]
    table = _settings_table(own, owners, defaults) if own else "This method has no settings of its own."
    if not shared:
        return table
    rest = _settings_table(shared, owners, defaults).replace("\n", "\n    ")
    return f'{table}\n\n??? note "Settings of every gradient method, with the defaults of this one"\n    {rest}'


def _shared(owner: type) -> bool:
    return any(kind.__name__ in ("Recipe", "Start") for kind in owner.__mro__)


def _settings_table(settings: list[str], owners: dict[str, type], defaults: dict[str, object]) -> str:
    lines = []
    for name in settings:
        default = written({name: defaults[name]}).partition("=")[2]
        shown = "the original's" if default == "none" and owners[name].__name__ == "InheritedRecipe" else f"`{default}`"
        lines.append(f"| `{name}` | {shown} | {descriptions(owners[name])[name]} |")
    return "\n".join(["| setting | default | description |", "|---|---|---|", *lines])


def _cost(name: str) -> str:
    """Return the method's line of the table in the guide, and its measured cost."""
    guide = GUIDE.read_text(encoding="utf-8")
    line = re.search(rf"^\| \[`{name}`\][^|]*\|([^|]+)\|([^|]+)\|([^|]+)\|([^|]+)\|$", guide, re.M)
    assert line, f"expected a line for {name} in the table of {GUIDE}"
    head = "| reads | changes | passes | extra memory | measured on digits |\n|---|---|---|---|---|"
    cost = f"{float(measured()['digits', name]['cost']):.0f} % of retraining"
    return (
        f"{head}\n|{line[1]}|{line[2]}|{line[3]}|{line[4]}| {cost} |\n\n"
        "A pass is one forward and backward pass of one sample. Forward passes alone are not counted."
    )


def _left_behind(name: str) -> list[str]:
    chosen = {scenario: written(measured_settings(scenario, name)).replace(" ", ":") for scenario in SCENARIOS}
    assert len(set(chosen.values())) == 1, f"expected the same settings of {name} on all of {list(SCENARIOS)}"
    settings = next(iter(chosen.values()))
    first = f"Measured with `{name}:{settings}`." if settings else "Measured with its defaults."
    tables = [
        f"**{scenario}**: {meaning}.\n\n{unbroken(results(scenario, [*BASELINES, name]))}"
        for scenario, meaning in SCENARIOS.items()
    ]
    return [first, *tables]


def _reading() -> str:
    seeds = next(iter(measured().values()))["seeds"]
    return f"""Means over {seeds} seeds with 95 % intervals, under Gaussian noise. **r** says how much more often than
the reference the model recognizes noisy copies of the forgotten samples. **G** is the same on samples of their classes
that no model saw, and **M = r / G** is memory of the samples themselves. The last row is the noise floor.
[How the settings were chosen](../benchmarks/digits-settings.md)."""
