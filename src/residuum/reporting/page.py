"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from residuum.core.errors import InputError
from residuum.core.files import file_sha256
from residuum.judging import gates, rule
from residuum.record import RowJudgment, Verdict
from residuum.record.run import Run
from residuum.reporting import wording
from residuum.reporting.decoys import decoy_basis, decoy_rows
from residuum.reporting.durability import durability_chip, durability_table
from residuum.reporting.gallery import GalleryPage
from residuum.reporting.glossary import COLUMNS
from residuum.reporting.plots import picture_of, plot_data, taken_measures
from residuum.reporting.samples import ALPHA, SampleList
from residuum.reporting.summary import COLORS, mark_meaning, probes_of, row_styles, source, summary_of, value_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = files("residuum.reporting") / "templates"
SCRIPTS = ("plot.js", "charts.js", "page.js")
LIMITS = {
    "error": rule.ERROR,
    "power": rule.POWER,
    "level_share": rule.LEVEL_SHARE,
    "radius_0_share": rule.RADIUS_0_SHARE,
    "radii_share": rule.RADII_SHARE,
    "memory_share": rule.MEMORY_SHARE,
    "retrained": rule.FEWEST_RETRAINED,
    "retain_points": gates.RETAIN_POINTS,
    "test_points": gates.TEST_POINTS,
    "control_points": gates.CONTROL_POINTS,
}  # what the page says of thresholds
WORDS: dict[str, Any] = {
    "SYMBOLS": wording.SYMBOLS,
    "blind": wording.blind,
    "chips": wording.chips,
    "differs": wording.differs,
    "TONES": wording.TONES,
    "figure_words": wording.figure_words,
    "forgotten": wording.forgotten,
    "headline": wording.headline,
    "model_words": wording.model_words,
    "not_proved": wording.not_proved,
    "nothing_to_forget": wording.nothing_to_forget,
    "recommendation": wording.recommendation,
    "unchanged_note": wording.unchanged_note,
    "verdict_badge": wording.verdict_badge,
    "verdict_sentence": wording.verdict_sentence,
}


def page_text(
    runs: Sequence[Run],
    galleries: Sequence[GalleryPage] = (),
    samples: Sequence[SampleList] = (),
    *,
    statement: bool = False,
) -> str:
    """Return the whole page: the same runs give the same text; `statement` links the statement beside it."""
    script, style = "\n".join(_file(name) for name in SCRIPTS), stylesheet()
    return rendered(
        "page.html.j2",
        title=page_title(runs),
        runs=runs,
        several=len(runs) > 1,
        rows=[row for run in runs for row in summary_of(run).rows],
        columns=COLUMNS,
        measures=taken_measures(runs),
        limits=LIMITS,
        verdicts=list(Verdict),
        galleries=galleries,
        samples=samples,
        statement=statement,
        decoys=[run for run in runs if run.record.decoys],
        decoy_rows=decoy_rows,
        decoy_basis=decoy_basis,
        probes=[(run, probes) for run in runs if (probes := probes_of(run))],
        value_text=value_text,
        mark_meaning=mark_meaning,
        durability_chip=durability_chip,
        durability_table=durability_table,
        limits_p=ALPHA,
        styles=row_styles(runs),
        picture_of=picture_of,
        figure=figure,
        source=source,
        settings_text=settings_text,
        noise_checks=noise_checks,
        file_hashes=file_hashes,
        data=script_json(plot_data(runs, galleries)),
        script=script,
        style=style,
        policy=policy(script, style),
    )


def rendered(template: str, **values: object) -> str:
    """Return a rendered template; `words` has the functions that phrase sentences."""
    return environment().get_template(template).render(words=WORDS, **values)


def page_title(runs: Sequence[Run]) -> str:
    """Return the title of the page."""
    return " and ".join(run.name for run in runs) if len(runs) < 4 else f"{len(runs)} runs"


def figure(judgment: RowJudgment) -> tuple[str, str] | None:
    """Return the level with its interval, and the noise floor."""
    finding = judgment.finding
    return wording.figure_words(finding) if finding and finding.has_floor else None


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


def file_hashes(run: Run) -> dict[str, str]:
    """Return SHA-256 of results.json and of every counts and gallery file below the run's folder, by relative path.

    Files whose hash is in the record were checked when the run was read.
    """
    patterns = ("counts/**/*.npz", "counts/*.json", "gallery/*.npz")
    paths = [path for pattern in patterns for path in sorted(run.folder.glob(pattern))]
    names = ["results.json", *(path.relative_to(run.folder).as_posix() for path in paths)]
    try:
        return {name: run.record.files.get(name) or file_sha256(run.folder / name) for name in names}
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
    colors = " ".join(f"--c{k}: {color};" for k, color in enumerate(COLORS))
    return (
        f":root {{ {colors} }}\n{style}\n"
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
    """Return the templates of all pages, with escaping."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
