"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from residuum.core.errors import InputError
from residuum.core.files import file_sha256
from residuum.judging import gates, rule
from residuum.record import Results, Verdict
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.answer import answer_of, chips_at, judged_methods, limits, next_step, origins
from residuum.reporting.decoys import decoy_basis, decoy_rows
from residuum.reporting.durability import durability_chip, durability_table
from residuum.reporting.gallery import GalleryPage
from residuum.reporting.glossary import ANSWERS, COLUMNS, SECTION_WORDS
from residuum.reporting.plots import curve_plots, measures_with_values, picture_of
from residuum.reporting.samples import ALPHA, SampleList
from residuum.reporting.summary import Cell, mark_meaning, probes_of, source, summary_of, value_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = files("residuum.reporting") / "templates"
NO_LINKS: Mapping[str, str] = MappingProxyType({})
LIMITS = {
    "error": rule.ERROR,
    "power": rule.POWER,
    "level_share": rule.LEVEL_SHARE,
    "radius_0_share": rule.RADIUS_0_SHARE,
    "radii_share": rule.RADII_SHARE,
    "retrained": rule.FEWEST_RETRAINED,
    "retain_points": gates.RETAIN_POINTS,
    "test_points": gates.TEST_POINTS,
    "control_points": gates.CONTROL_POINTS,
}  # what the page says of thresholds


class Section(NamedTuple):
    """A folded part of the page below the first screen; its template is called as its anchor."""

    anchor: str
    short: str
    title: str
    about: str


SECTIONS = tuple(Section(anchor, **words) for anchor, words in SECTION_WORDS.items())


def page_text(
    runs: Sequence[Run],
    galleries: Sequence[GalleryPage] = (),
    samples: Sequence[SampleList] = (),
    *,
    links: Mapping[str, str] = NO_LINKS,
) -> str:
    """Return the whole page: the same runs give the same text; `links` has the names of files in its folder.

    Sections without content are left out.
    """
    script, style = _file("page.js"), stylesheet()
    decoys = [run for run in runs if run.record.decoys]
    probes = [(run, probes) for run in runs if (probes := probes_of(run))]
    content = {
        "curves": any(run.perturbations for run in runs),
        "gallery": any(gallery.cards for gallery in galleries),
        "samples": any(sample_list.tables for sample_list in samples),
        "decoys": decoys,
        "probes": probes,
    }
    return rendered(
        "page.html.j2",
        title=" and ".join(run.name for run in runs) if len(runs) < 4 else f"{len(runs)} runs",
        runs=runs,
        several=len(runs) > 1,
        sections=[section for section in SECTIONS if content.get(section.anchor, True)],
        rows=[row for run in runs for row in summary_of(run).rows],
        judged=list(dict.fromkeys(label for run in runs for label in run.verdicts)),
        columns=COLUMNS,
        limits_of_rule=LIMITS,
        verdicts=list(Verdict),
        answers=ANSWERS,
        galleries=galleries,
        samples=samples,
        links=links,
        decoys=decoys,
        probes=probes,
        left_out=[note for notes in (*(g.notes for g in galleries), *(s.notes for s in samples)) for note in notes],
        limits_p=ALPHA,
        data=script_json([gallery.answers() for gallery in galleries if gallery.cards]),
        script=script,
        style=style,
        policy=policy(script, style),
    )


def rendered(template: str, **values: object) -> str:
    """Return a rendered template."""
    return environment().get_template(template).render(values)


def cells_of(run: Run, label: str) -> dict[str, Cell]:
    """Return the cells of a row in the table of results; none of a line that stands for several rows."""
    return next((row.cells for row in summary_of(run).rows if row.label == label), {})


def settings_text(run: Run) -> str:
    """Return the settings of the scenario as JSON."""
    settings = run.record.scenario.settings.model_dump(mode="json", exclude_unset=True)
    return json.dumps(settings, indent=1, ensure_ascii=False)


def noise_checks(run: Run) -> dict[str, str]:
    """Return the check value of each seed's random stream."""
    checks: dict[str, str] = {}
    for _, seed, _, audit in run.record.each_audit():
        if audit.settings.noise_check:
            checks.setdefault(seed, audit.settings.noise_check)
    return checks


def record_hash(run: Run) -> str:
    """Return SHA-256 of results.json, which has the hashes of all other files of the run."""
    try:
        return file_sha256(run.folder / Results.FILE)
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}; repeat the run's command") from None


def script_json(value: object) -> str:
    r"""Return JSON that is safe inside a script element: no markup, no line separators.

    >>> script_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def stylesheet() -> str:
    """Return the style sheet with the dark colors for dark screens and for the switch; paper stays light."""
    style, dark = _file("page.css"), _file("dark.css")
    return (
        f"{style}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ {dark} }} }}\n"
        f"@media screen {{ :root[data-theme='dark'] {{ {dark} }} }}\n"
    )


def policy(script: str, style: str) -> str:
    """Return a content security policy that allows this script and style, inline pictures, and no network request."""
    allowed = f"img-src data:; script-src {_hash(script)}; style-src {_hash(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") + "'"


@lru_cache
def _file(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@lru_cache
def environment() -> Environment:
    """Return the templates of all pages, with escaping; `words` is the module that phrases sentences."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    pages = Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    functions = (
        *(answer_of, cells_of, chips_at, curve_plots, decoy_basis, decoy_rows, durability_chip, durability_table),
        *(judged_methods, limits, mark_meaning, measures_with_values, next_step, noise_checks, origins, picture_of),
        *(record_hash, settings_text, source, value_text),
    )
    pages.globals.update({function.__name__: function for function in functions}, words=wording)
    return pages
