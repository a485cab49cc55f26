"""Check an evidence pack of Residuum with nothing but the standard library of Python.

    python verify_pack.py PACK [--accept-page] [--json]

This file shares no code with Residuum. It was written from the description of the format alone
(docs/reference/evidence-format.md), whose sections the comments below name. It checks structure and hashes, recomputes
every number that follows from the counts, compares the numbers that the page shows, and says what it did not check.

Exit codes: 0 everything that was checked agrees; 1 a difference, or a page that was not checked and not accepted; 2 the
file is no evidence pack.
"""

import argparse
import hashlib
import json
import math
import random
import re
import statistics
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from html.parser import HTMLParser
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

Json = Any
Floats = list[float]

PACK_SCHEMA, RECORD_SCHEMA, RULE_VERSION = "residuum.pack/4", "residuum.results/4", 3
MOST_MEMBERS, MOST_DIRECTORY, MOST_MEMBER, MOST_TOTAL = 4000, 2**20, 16 * 2**20, 256 * 2**20
MOST_RATIO, ALWAYS_ALLOWED, MOST_BRACKETS, MOST_IN_RECORD, PIECE = 50, 16 * 2**20, 500_000, 200_000, 2**20
MOST_ROWS, MOST_SEEDS, MOST_STEPS = 500, 5_000, 10_000_000
MEMBER = re.compile(r"manifest\.json|results\.json|report\.html|counts/[0-9]{4}(-heldout)?\.json")
TOLERANCE = 1e-9
ERROR, LEVEL, RADIUS_0, RADII, MEMORY, POWER, FEWEST, LEAK = 0.035, 0.35, 0.35, 0.15, 0.15, 0.8, 3, 0.001
LABELS = {
    "NOT_COMPARABLE": "reference not comparable",
    "FOUND": "residual knowledge found",
    "MIXED": "mixed",
    "OVER_FORGOTTEN": "over-forgotten",
    "INCONCLUSIVE": "inconclusive",
    "NOT_DETECTED": "not detected",
}
ON_TRUST = (
    "the counts themselves: without models, data and key nobody can count again",
    "accuracies, membership attacks, re-learn times and values of probes by seed",
    "bootstrap intervals, which need numpy's generator; noise_check, first_request and measures",
    "seconds, passes, dates, versions, recipes, warnings, notes and doubts",
    "hashes and architectures of weights, what models were trained on, fingerprints and near-duplicates",
    "left_out, non_claims and threat_model; whether rows, seeds or audits are missing",
    "scores of decoys and of held-out samples, and why these may be exchanged",
)


class NoPackError(Exception):
    """The file is no evidence pack; the text says why."""


# --- distribution functions (section 12) ---


class Steps:
    """How many steps were computed: a pack from anybody may not keep a reader busy for hours."""

    done = 0


def spend(steps: int) -> None:
    Steps.done += steps
    if Steps.done > MOST_STEPS:
        raise NoPackError("it needs more computing than a pack may")


@cache
def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 100_000):
        spend(1)
        step = 1.0
        even, odd = (
            m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)),
        )
        for factor in (even * x, odd * x):
            d, c = 1 + factor * d, 1 + factor / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            step = c * d
            fraction *= step
        if abs(step - 1) < 1e-16:
            break
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta(a, b)) * fraction / a


@cache
def beta_quantile(p: float, a: float, b: float) -> float:
    """Return x with I_x(a, b) = p: Newton's steps, and bisection where they leave the bracket."""
    low, high = 0.0, 1.0
    x = min(max(a / (a + b), 1e-12), 1 - 1e-12)
    for _ in range(200):
        error = beta_cdf(x, a, b) - p
        if error == 0:
            return x
        low, high = (low, x) if error > 0 else (x, high)
        slope = math.exp(min((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log_beta(a, b), 700.0))
        step = x - error / slope if slope > 0 else -1.0
        following = step if low < step < high else (low + high) / 2
        if abs(following - x) <= 1e-15 * x or following in (low, high):
            return following
        x = following
    return x


def t_cdf(t: float, df: int) -> float:
    if math.isinf(t):
        return float(t > 0)
    tail = beta_cdf(df / (df + t * t), df / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


@cache
def t_quantile(p: float, df: int) -> float:
    if p < 0.5:
        return -t_quantile(1 - p, df)
    x = beta_quantile(2 * (1 - p), df / 2, 0.5)
    return math.sqrt(df * (1 - x) / x)


def normal_quantile(p: float) -> float:
    return statistics.NormalDist().inv_cdf(p)


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation with one degree of freedom less than numbers; 0 for one number."""
    center = mean(values)
    return math.sqrt(math.fsum((v - center) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0


def clipped(x: float, low: float = 0.0, high: float = 1.0) -> float:
    return min(max(x, low), high)


def ratio(a: float, b: float) -> float | None:
    return a / b if b else None


# --- the file: members, JSON, hashes (sections 1 to 3) ---


class Members(Mapping[str, bytes]):
    """The members of a pack within the limits of the format, unpacked anew whenever one is asked for."""

    def __init__(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(max(size - 22, 0))
                tail = file.read()
            if tail[:4] != b"PK\5\6" or int.from_bytes(tail[12:16], "little") > MOST_DIRECTORY:
                raise NoPackError("expected a .zip file without comment and with a directory of at most 1 MiB")
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise NoPackError(f"cannot be read as a .zip file: {error}") from None
        infos = self._archive.infolist()
        self._infos = {info.filename: info for info in infos}
        if len(infos) > MOST_MEMBERS or len(self._infos) < len(infos):
            raise NoPackError(f"expected at most {MOST_MEMBERS} members, each of them once")
        if wrong := next((name for name in self._infos if not MEMBER.fullmatch(name)), None):
            raise NoPackError(f"expected members of an evidence pack, got {wrong[:80]!r}")
        if missing := {"manifest.json", "results.json", "report.html"} - set(self._infos):
            raise NoPackError(f"expected {', '.join(sorted(missing))} in the pack")
        if any(info.compress_type not in (0, 8) or info.flag_bits & 1 for info in infos):
            raise NoPackError("expected members that are stored or deflated, and not encrypted")
        allowed = min(MOST_TOTAL, max(ALWAYS_ALLOWED, MOST_RATIO * size))
        if sum(info.file_size for info in infos) > allowed or any(info.file_size > MOST_MEMBER for info in infos):
            raise NoPackError(f"expected at most {MOST_MEMBER} bytes in a member and {allowed} in all")
        brackets = {name: sum(map(_brackets, self._pieces(name))) for name in self._infos if name != "report.html"}
        most = max(brackets["results.json"], brackets["manifest.json"])
        if sum(brackets.values()) > MOST_BRACKETS or most > MOST_IN_RECORD:
            raise NoPackError("expected fewer lists and objects")

    def _pieces(self, name: str) -> Iterator[bytes]:
        left = self._infos[name].file_size
        try:
            with self._archive.open(name) as stream:
                while piece := stream.read(PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise NoPackError(f"{name} is larger than the pack says")
                    yield piece
        except NoPackError:
            raise
        except Exception as error:  # zlib's error has no base of its own
            raise NoPackError(f"{name} cannot be unpacked: {error}") from None

    def __getitem__(self, name: str) -> bytes:
        """Return the content of a member."""
        return b"".join(self._pieces(name))

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._infos)

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._infos)


def _brackets(piece: bytes) -> int:
    return piece.count(b"[") + piece.count(b"{")


def written(value: Json, *, ordered: bool = True) -> bytes:
    """Return JSON in the spelling of the format; canonical if the keys are `ordered`."""
    text = json.dumps(value, sort_keys=ordered, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def parsed(name: str, content: bytes, *, ordered: bool = True) -> Json:
    try:
        value = json.loads(content)
        if written(value, ordered=ordered) == content:
            return value
    except (ValueError, RecursionError):
        pass  # refused below, as every other spelling is
    raise NoPackError(f"{name}: expected JSON in the spelling of the format")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def without(value: dict[str, Json], *keys: str) -> dict[str, Json]:
    return {key: part for key, part in value.items() if key not in keys}


# --- counts (section 4) ---


class Radius(NamedTuple):
    """The counts at one radius, a list over samples each: draws, and how many showed that a model is right."""

    draws: list[int]
    model: list[int]
    reference: list[int]
    both: list[int]
    original: list[int] | None
    same: list[int]
    patterns: list[list[int]]

    def shares(self, right: list[int]) -> Floats:
        return [k / d for k, d in zip(right, self.draws, strict=True)]

    def paired_variance(self, r: float, weights: Floats) -> float:
        """Return V(r, w) of section 6."""
        total = 0.0
        for d, m, a, b, w in zip(self.draws, self.model, self.reference, self.both, weights, strict=True):
            n = d + 0.2
            q11, q10, q01 = (b + 0.05) / n, (m - b + 0.05) / n, (a - b + 0.05) / n
            first = q11 * (1 - r) + q10 - r * q01
            total += w * w * (q11 * (1 - r) ** 2 + q10 + r * r * q01 - first * first) * n / ((n - 1) * d)
        return total


class Counts(NamedTuple):
    """One counts file."""

    ids: list[str]
    labels: list[int]
    taus: Floats
    radii: list[Radius]

    def of_classes(self, classes: set[int]) -> "Counts":
        """Return the counts of the samples of some classes."""
        keep = [i for i, label in enumerate(self.labels) if label in classes]
        radii = [Radius(*(None if part is None else [part[i] for i in keep] for part in r)) for r in self.radii]  # type: ignore[arg-type]
        return Counts([self.ids[i] for i in keep], [self.labels[i] for i in keep], self.taus, radii)


def whole(value: Json) -> bool:
    return type(value) is int and 0 <= value < 2**31


def read_counts(content: bytes) -> Counts:
    """Return a counts file; a ValueError says which rule it breaks."""
    try:
        table = parsed("counts", content)
    except NoPackError as error:
        raise ValueError(str(error)) from None
    if not isinstance(table, dict) or sorted(table) != ["ids", "joint", "labels", "same_prediction", "taus"]:
        raise ValueError("expected the keys ids, joint, labels, same_prediction and taus")
    ids, labels, taus, joint, same = (table[key] for key in ("ids", "labels", "taus", "joint", "same_prediction"))
    if ids != sorted(set(ids)) or len(labels) != len(ids) or not all(type(tau) is float for tau in taus):
        raise ValueError("expected different ids in order, a label for each, and radii")
    sizes = {len(cell) for row in joint for cell in row}
    shapes = {len(row) for row in chain(joint, same)}
    if len(joint) != len(ids) or len(same) != len(ids) or not sizes <= {4, 8} or len(sizes) > 1 or shapes - {len(taus)}:
        raise ValueError("expected a list of 4 or 8 patterns for each sample and radius")
    if not all(map(whole, chain(labels, chain.from_iterable(same), chain.from_iterable(chain.from_iterable(joint))))):
        raise ValueError("expected whole numbers of at least 0")
    radii = []
    for t in range(len(taus)):
        cells = [row[t] for row in joint]
        d = list(map(sum, cells))
        m, a, b = ([sum(c[k] for k in ks if k < len(c)) for c in cells] for ks in ((2, 3, 6, 7), (1, 3, 5, 7), (3, 7)))
        o = [sum(c[4:]) for c in cells] if sizes == {8} else None
        agree = [row[t] for row in same]
        if any(
            x < 1 or not bb <= s <= x - mm - aa + 2 * bb for x, mm, aa, bb, s in zip(d, m, a, b, agree, strict=True)
        ):
            raise ValueError("expected one draw or more, and as many equal answers as the patterns allow")
        radii.append(Radius(d, m, a, b, o, agree, cells))
    return Counts(ids, labels, taus, radii)


# --- measures of an audit (section 6) ---


def log_interval(x: float | None, s: float, z: float) -> tuple[float | None, float | None]:
    if x is None:
        return None, None
    if x == 0:
        return 0.0, z * s
    return x * math.exp(-z * s / x), x * math.exp(z * s / x)


def share_interval(hits: list[int], draws: list[int], c: float) -> tuple[float, float]:
    """Return the ends of the interval of the mean share of hits, over draws."""
    n, x = len(hits), mean(h / d for h, d in zip(hits, draws, strict=True))
    q = [(h + 0.1) / (d + 0.2) for h, d in zip(hits, draws, strict=True)]
    spread = sum(p * (1 - p) * (d + 0.2) / ((d - 0.8) * d) for p, d in zip(q, draws, strict=True)) / n**2
    size, t = mean(q) * (1 - mean(q)) / spread, (1 - c) / 2
    k, rest = x * size, size - x * size
    low = beta_quantile(t, max(k, 1e-9), rest + 1) if k > 0 else 0.0
    return low, beta_quantile(1 - t, k + 1, max(rest, 1e-9)) if rest > 0 else 1.0


def discoveries(radius: Radius) -> list[bool]:
    """Return which samples Benjamini and Hochberg discover at 0.05."""
    p_values = []
    for m, a, b in zip(radius.model, radius.reference, radius.both, strict=True):
        u, v = m - b, a - b
        p_values.append(_binomial_tail(u, u + v))
    order, n = sorted(range(len(p_values)), key=p_values.__getitem__), len(p_values)
    scaled = [p_values[i] * n / (k + 1) for k, i in enumerate(order)]
    smallest = list(accumulate(reversed(scaled), min))[::-1]
    found = {i for i, p in zip(order, smallest, strict=True) if p <= 0.05}
    return [i in found for i in range(n)]


@cache
def _binomial_tail(u: int, n: int) -> float:
    if u == 0 or n > 1000:  # exact where it can be: p n / k may be 0.05 itself
        return beta_cdf(0.5, u, n - u + 1) if u else 1.0
    tail: float = sum(math.comb(n, k) for k in range(u, n + 1)) / 2**n
    return tail


class Derived:
    """The measures of one audit, from its counts of forgotten and of held-out samples."""

    def __init__(self, settings: dict[str, Json], forget: Counts, heldout: Counts | None) -> None:
        self.c = settings["confidence"]
        self.z = normal_quantile((1 + self.c) / 2)
        self.enumerated = bool(settings.get("enumerated"))
        self.crafted_on: str | None = settings.get("crafted_on")
        self.forget, self.taus, self.samples = forget, forget.taus, len(forget.ids)
        self.certain = [tau == 0 or self.enumerated for tau in forget.taus]
        self.measures: dict[str, Json] = {"taus": forget.taus, "samples": self.samples}
        self.measures["draws"] = [min(r.draws) for r in forget.radii]
        rows = [
            self._forgotten(r, sure, tau) for r, sure, tau in zip(forget.radii, self.certain, self.taus, strict=True)
        ]
        self._collect(rows)
        first: dict[str, float | None] = dict.fromkeys(forget.ids)
        for tau, r, sure in sorted(zip(self.taus, forget.radii, self.certain, strict=True), key=lambda item: item[0]):
            hit = [m > a for m, a in zip(r.model, r.reference, strict=True)] if sure else discoveries(r)
            first |= {i: tau for i, yes in zip(forget.ids, hit, strict=True) if yes and first[i] is None}
        self.measures["first_radius"] = first
        self._with_heldout(heldout)

    def _collect(self, rows: list[dict[str, Json]]) -> None:
        """Turn one dictionary for each radius, keys `measure.entry`, into lists over radii."""
        for key in rows[0] if rows else ():
            name, _, entry = key.partition(".")
            values = [row[key] for row in rows]
            if entry:
                self.measures.setdefault(name, {})[entry] = values
            else:
                self.measures[name] = values

    def _forgotten(self, r: Radius, sure: bool, tau: float) -> dict[str, Json]:
        n, z, ones = self.samples, self.z, [1.0] * self.samples
        pm, pa = r.shares(r.model), r.shares(r.reference)
        pairs = list(zip(r.model, r.reference, strict=True))
        more = sum(m > a for m, a in pairs)
        pooled = ratio(sum(pm), sum(pa))
        low, high = (pooled, pooled)
        if pooled is not None and not sure:
            low, high = log_interval(pooled, math.sqrt(r.paired_variance(pooled, ones)) / sum(pa), z)
        difference = mean(x - y for x, y in zip(pm, pa, strict=True))
        width = 0.0 if sure else z * math.sqrt(r.paired_variance(1, ones)) / n
        defined = [m > a for m, a in pairs if a > 0]
        x, base = more / n, 1 + z * z / n
        half = z / base * math.sqrt(x * (1 - x) / n + z * z / (4 * n * n))
        middle = (x + z * z / (2 * n)) / base
        significant: float | None = None
        if tau > 0:
            significant = x if self.enumerated else sum(discoveries(r)) / n
        made: dict[str, Json] = {
            "residual_knowledge.pooled": pooled,
            "residual_knowledge.low": low,
            "residual_knowledge.high": high,
            "residual_knowledge.mean_of_ratios": mean(m / a for m, a in pairs if a) if defined else None,
            "residual_knowledge.smoothed": mean((m + 0.5) / (a + 0.5) for m, a in pairs),
            "residual_knowledge.infinite": sum(a == 0 < m for m, a in pairs),
            "residual_knowledge.undefined": sum(a == 0 == m for m, a in pairs),
            "difference.value": difference,
            "difference.low": clipped(difference - width, -1),
            "difference.high": clipped(difference + width, -1),
            "prevalence.value": x,
            "prevalence.low": clipped(middle - half),
            "prevalence.high": clipped(middle + half),
            "prevalence_defined": mean(defined) if defined else None,
            "prevalence_significant": significant,
        }
        for name, right in (("disagreement", r.same), ("unlearn_accuracy", r.model)):
            hits = [d - k for d, k in zip(r.draws, right, strict=True)]
            value = mean(h / d for h, d in zip(hits, r.draws, strict=True))
            ends = (value, value) if sure else share_interval(hits, r.draws, self.c)
            made |= dict(zip((f"{name}.value", f"{name}.low", f"{name}.high"), (value, *ends), strict=True))
        return made

    def _with_heldout(self, heldout: Counts | None) -> None:
        """Add class knowledge and memory, on the classes that both sets have."""
        of_class = Counter(heldout.labels if heldout else ())
        classes = {label for label in set(self.forget.labels) if of_class[label] >= 10}
        left_out = [f"class {k} of the pack" for k in sorted(set(self.forget.labels) - classes)]
        self.kept = self.forget.of_classes(classes)
        if heldout is None or not classes:
            self.measures["heldout"] = {"samples": 0}
            return
        self.outside = heldout.of_classes(classes)
        share = Counter(self.kept.labels)
        self.weights = [share[k] / len(self.kept.labels) / of_class[k] for k in self.outside.labels]
        self.measures["heldout"] = {"samples": len(self.outside.ids), "left_out": left_out}
        rows = [self._memory(k) for k in range(len(self.taus))]
        for key in ("rate", "reference_rate"):
            self.measures["heldout"][key] = [row.pop(f"heldout.{key}") for row in rows]
        forgotten = {key: [row.pop(f"kept.{key}") for row in rows] for key in ("rate", "reference_rate")}
        if left_out:
            self.measures["heldout"]["forgotten"] = {"samples": len(self.kept.ids), **forgotten}
        self._collect(rows)

    def _class_means(self, values: Floats) -> dict[int, float]:
        by_class: dict[int, Floats] = {}
        for label, value in zip(self.outside.labels, values, strict=True):
            by_class.setdefault(label, []).append(value)
        return {label: mean(part) for label, part in by_class.items()}

    def _spread(self, values: Floats) -> float:
        """Return U(x) of section 6."""
        centers, sizes = self._class_means(values), Counter(self.outside.labels)
        return sum(
            w * w * sizes[k] / (sizes[k] - 1) * (x - centers[k]) ** 2
            for x, w, k in zip(values, self.weights, self.outside.labels, strict=True)
        )

    def _memory(self, t: int) -> dict[str, Json]:
        f, h, z, n = self.kept.radii[t], self.outside.radii[t], self.z, len(self.kept.ids)
        fm, fa, hm, ha = f.shares(f.model), f.shares(f.reference), h.shares(h.model), h.shares(h.reference)
        pm_f, pa_f = mean(fm), mean(fa)
        pm_h, pa_h = (sum(w * p for w, p in zip(self.weights, part, strict=True)) for part in (hm, ha))
        equal = [1 / n] * n
        r, g = ratio(pm_f, pa_f), ratio(pm_h, pa_h)
        memory = r / g if r is not None and g else None
        v_h, v_f = h.paired_variance(g or 0.0, self.weights), f.paired_variance(r or 0.0, equal)
        e_f = [p - (r or 0.0) * q for p, q in zip(fm, fa, strict=True)]
        e_h = [p - (g or 0.0) * q for p, q in zip(hm, ha, strict=True)]
        f_f, f_h = ([p - q for p, q in zip(*part, strict=True)] for part in ((fm, fa), (hm, ha)))
        by_samples, sure = len(self.outside.ids) >= 30, self.certain[t]
        row: dict[str, Json] = {"heldout.rate": pm_h, "heldout.reference_rate": pa_h}
        row |= {"kept.rate": pm_f, "kept.reference_rate": pa_f}

        def entries(name: str, value: float | None, draws: tuple[Json, Json], samples: tuple[Json, Json]) -> None:
            ends = (value, value) if sure else draws
            names = (f"{name}.{end}" for end in ("value", "low", "high", "sample_low", "sample_high"))
            row.update(zip(names, (value, *ends, *(samples if by_samples else (None, None))), strict=True))

        def of_mean(values: Floats) -> float | None:
            return deviation(values) ** 2 / n if n > 1 else None

        def interval(value: float | None, variance: float | None) -> tuple[Json, Json]:
            return (None, None) if variance is None else log_interval(value, math.sqrt(variance), z)

        nothing: tuple[Json, Json] = (None, None)
        entries(
            "class_knowledge",
            g,
            interval(g, v_h / pa_h**2) if g is not None else nothing,
            interval(g, self._spread(e_h) / pa_h**2) if g is not None else nothing,
        )
        draws, samples = nothing, nothing
        if memory is not None and r is not None and g:
            draws = interval(memory, v_f / (pa_f * g) ** 2 + v_h * (memory / pm_h) ** 2)
            centers = self._class_means(e_h)
            y = [e / (pa_f * g) - centers[k] * memory / pm_h for e, k in zip(e_f, self.kept.labels, strict=True)]
            if memory and (of_y := of_mean(y)) is not None:
                samples = interval(memory, of_y + self._spread(e_h) * (memory / pm_h) ** 2)
        entries("memory", memory, draws, samples)
        difference = (pm_f - pa_f) - (pm_h - pa_h)
        half = z * math.sqrt(f.paired_variance(1, equal) + h.paired_variance(1, self.weights))
        centers = self._class_means(f_h)
        of_g = of_mean([e - centers[k] for e, k in zip(f_f, self.kept.labels, strict=True)])
        wide = None if of_g is None else z * math.sqrt(of_g + self._spread(f_h))
        entries(
            "memory_difference",
            difference,
            (difference - half, difference + half),
            nothing if wide is None else (difference - wide, difference + wide),
        )
        if f.original is not None and h.original is not None:
            near = [
                [abs(m - a) - abs(m - o) for m, a, o in zip(*parts, strict=True)]
                for parts in ((fm, fa, f.shares(f.original)), (hm, ha, h.shares(h.original)))
            ]
            forgotten, outside = mean(near[0]), sum(w * x for w, x in zip(self.weights, near[1], strict=True))
            row |= {"nearer.value": forgotten - outside, "nearer.forgotten": forgotten, "nearer.heldout": outside}
        return row

    def add_completeness(self, floor: Floats) -> None:
        """Add completeness, whose floor is what controls differ by from the reference."""
        if all(r.original is not None for r in self.forget.radii):
            self._collect([self._completeness(t, least) for t, least in enumerate(floor)])

    def _completeness(self, t: int, floor: float) -> dict[str, Json]:
        r, n, z, sure = self.forget.radii[t], self.samples, self.z, self.certain[t]
        po = r.shares(r.original or [])
        xs = [o - m for o, m in zip(po, r.shares(r.model), strict=True)]
        ys = [o - a for o, a in zip(po, r.shares(r.reference), strict=True)]
        lost, lead = mean(xs), mean(ys)
        moments = [0.0, 0.0, 0.0]  # var of L, cov, var of D over draws
        for cells, d in zip(r.patterns, r.draws, strict=True):
            q = [(k + 1 / 40) / (d + 0.2) for k in cells]
            x = [(k >> 2 & 1) - (k >> 1 & 1) for k in range(8)]
            y = [(k >> 2 & 1) - (k & 1) for k in range(8)]
            mx, my = (sum(p * v for p, v in zip(q, part, strict=True)) for part in (x, y))
            scale = (d + 0.2) / ((d - 0.8) * d) / n**2
            for k, (one, two, product) in enumerate(((x, x, mx * mx), (x, y, mx * my), (y, y, my * my))):
                moments[k] += (sum(p * u * v for p, u, v in zip(q, one, two, strict=True)) - product) * scale
        value = lost / lead if lead > 0 else None
        over_samples: tuple[Json, Json] = (None, None)
        if n > 1:
            cov = [
                math.fsum((u - mean(one)) * (v - mean(two)) for u, v in zip(one, two, strict=True)) / (n * (n - 1))
                for one, two in ((xs, xs), (xs, ys), (ys, ys))
            ]
            over_samples = _fieller(value, lost, lead, cov, z)
        over_draws = (value, value) if sure else _fieller(value, lost, lead, moments, z)
        gap = lead if sure else lead - z * math.sqrt(moments[2])
        numbers = (value, *over_samples, *over_draws) if gap > floor else (None,) * 5
        names = ("value", "low", "high", "draw_low", "draw_high", "gap_low", "floor")
        return {f"completeness.{name}": x for name, x in zip(names, (*numbers, gap, floor), strict=True)}

    def rates(self, part: str) -> tuple[int, Floats, Floats] | None:
        """Return samples, and the rates of row and reference (section 7)."""
        heldout = self.measures["heldout"]
        if part == "heldout":
            source = heldout if heldout["samples"] else None
        else:
            source = heldout.get("forgotten") if part == "kept" else None
            if source is None:
                p = [1 - x for x in self.measures["unlearn_accuracy"]["value"]]
                against = [x - y for x, y in zip(p, self.measures["difference"]["value"], strict=True)]
                return self.samples, [clipped(x) for x in p], [clipped(x) for x in against]
        if source is None:
            return None
        return source["samples"], *([clipped(x) for x in source[key]] for key in ("rate", "reference_rate"))


def _fieller(value: float | None, lost: float, lead: float, cov: Floats, z: float) -> tuple[Json, Json]:
    a, b, k = lead**2 - z * z * cov[2], lost * lead - z * z * cov[1], lost**2 - z * z * cov[0]
    if value is None or not a > 0:
        return None, None
    root = math.sqrt(max(b * b - a * k, 0.0))
    return (b - root) / a, (b + root) / a


# --- what retrained models show, and findings (section 7) ---

SETS = {"r": ("forgotten",), "G": ("heldout",), "M": ("kept", "heldout")}
Column = dict[str, float]


class Rates(NamedTuple):
    """Recognition rates on one set of samples, for each seed and radius."""

    samples: int
    row: list[Floats]
    reference: list[Floats]


class Part:
    """One quantity under one perturbation, and what retrained models show of it, column by column."""

    def __init__(self, run: "Run", name: str, quantity: str) -> None:
        self.run, self.name, self.quantity, self.form = run, name, quantity, run.form
        controls = [run.audits(label, name) for label in run.labels("control")]
        first = controls[0][0]
        self.seeds, self.taus, self.crafted_on = len(controls[0]), first.taus, first.crafted_on
        self.attacked = run.audits(run.labels("reference")[0], name) if self.crafted_on == "unlearned" else None
        self.samples = 0
        rates = [self._rates(audits) for audits in controls]
        sizes = [len(audits) for audits in controls] + ([len(self.attacked)] if self.attacked else [])
        samples = {tuple(part.samples for part in row) for row in rates}
        self.exists = set(sizes) == {self.seeds} and max(self.taus) > 0 and len(samples) == 1 and samples != {()}
        if not self.exists:
            return
        self.samples = rates[0][0].samples
        reference = [[self.scores(p) for p in part.reference] for part in rates[0]]
        columns = 1 + len(self.taus) if quantity == "r" else 1
        self.base = [mean(seed[c] for seed in reference[0]) for c in range(columns)]
        values = [self._values(row) for row in rates]
        level = [
            reference[0][s][c] - (reference[1][s][c] if len(reference) > 1 else 0.0)
            for s in range(self.seeds)
            for c in range(columns)
        ]
        self.n, self.mean, self.spread = [], [], []
        for c in range(columns):
            shown = [(v[s][c], level[s * columns + c]) for v in values for s in range(self.seeds)]
            alike = self.crafted_on != "reference" or (quantity == "r" and c > 0 and self.taus[c - 1] == 0)
            self.n.append(self.seeds * (len(controls) + alike))
            self.mean.append(math.fsum(v for v, _ in shown) / self.n[c])
            references = level[c::columns] if alike else []
            apart = deviation([*references, *(v + alike * u for v, u in shown)])
            floors = [self._half_sample([row[i] for row in rates], c) for i in range(len(reference))]
            self.spread.append(max(apart, math.hypot(*floors)))
        self.shares = [0.0] * columns

    def _rates(self, audits: list[Derived]) -> list[Rates]:
        """Return the rates on each set of the quantity; nothing where one is missing."""
        made = []
        for part in SETS[self.quantity]:
            rates = [audit.rates(part) for audit in audits]
            against = [audit.rates(part) for audit in self.attacked or audits]
            known, sizes = [r for r in rates if r], {r[0] if r else 0 for r in [*rates, *against]}
            if len(sizes) != 1 or 0 in sizes or len(rates) != len(against):
                return []
            reference = [r[1] if self.attacked else r[2] for r in against if r]
            made.append(Rates(sizes.pop(), [r[1] for r in known], reference))
        return made

    def level_first(self, p: Floats) -> Floats:
        return [mean(x for x, tau in zip(p, self.taus, strict=True) if tau > 0), *p]

    def score(self, p: float) -> float:
        if self.form == "class":
            return p
        return math.log(p + 1 / (2 * self.samples)) if self.quantity == "M" else math.asin(math.sqrt(p))

    def scores(self, p: Floats) -> Floats:
        return [self.score(x) for x in self.level_first(p)]

    def _half_sample(self, rates: list[Rates], column: int) -> float:
        """Return how far half a sample moves the score at the mean rate of the controls."""
        n, flat = rates[0].samples, [p for of in rates for p in of.row]
        p = self.level_first([mean(values) for values in zip(*flat, strict=True)])[column]
        below, here, above = (self.score(clipped(p + step / (2 * n))) for step in (-1, 0, 1))
        return max(above - here, here - below)

    def _values(self, rates: list[Rates]) -> list[Floats]:
        """Return the values of a row against the reference, for each seed and column."""
        parts = [
            [
                [x - y for x, y in zip(self.scores(p), self.scores(q), strict=True)]
                for p, q in zip(of.row, of.reference, strict=True)
            ]
            for of in rates
        ]
        if len(parts) == 1:
            return [seed[: len(self.base)] for seed in parts[0]]
        return [[x[0] - y[0]] for x, y in zip(*parts, strict=True)]

    def row_values(self, label: str) -> list[Floats] | None:
        audits = self.run.audits(label, self.name)
        rates = self._rates(audits) if len(audits) == self.seeds else []
        return self._values(rates) if rates and rates[0].samples == self.samples else None

    def natural(self, x: float, c: int) -> float:
        if self.form == "class":
            return x
        if self.quantity == "M":
            return math.exp(min(x, 700.0))
        over, under = (
            math.sin(clipped(a, 0, math.pi / 2)) ** 2 + 1 / (2 * self.samples) for a in (self.base[c] + x, self.base[c])
        )
        return over / under

    def judged(self, values: list[Floats], c: int) -> Column:
        """Return the shift of a row in a column, T, p and the half floor."""
        n, share = self.n[c], self.shares[c]
        shift = mean(v[c] for v in values) - self.mean[c]
        if n < FEWEST:
            return {"shift": shift, "T": math.nan, "p": 1.0, "half": math.nan, "detectable": math.nan}
        error = self.spread[c] * math.sqrt(1 / self.seeds + 1 / n)
        half = t_quantile(1 - ERROR * share / 2, n - 1) * error if share else math.inf
        statistic = shift / error if shift else 0.0
        tail = t_cdf(-statistic if self.quantity == "M" else -abs(statistic), n - 1)
        detectable = half + t_quantile(POWER, n - 1) * error
        return {
            "shift": shift,
            "T": statistic,
            "p": min(1.0, 2 * tail / share) if share else 1.0,
            "half": half,
            "detectable": detectable,
        }

    def side(self, column: Column) -> str | None:
        if column["shift"] > column["half"]:
            return "above"
        return "below" if column["shift"] < -column["half"] and self.quantity != "M" else None

    def finding(self, label: str) -> dict[str, Json] | None:
        values = self.row_values(label)
        if values is None:
            return None
        columns = []
        for c in range(len(self.base)):
            of, x, n = self.judged(values, c), mean(v[c] for v in values), self.n[c]
            known, floored = n >= FEWEST, math.isfinite(of["half"])
            wide = t_quantile(0.975, n - 1) * self.spread[c] / math.sqrt(self.seeds) if known else math.nan
            excess = self.mean[c] + of["detectable"]
            most = math.inf if self.quantity == "M" else 1.0 if self.form == "class" else math.pi / 2
            ends = ([self.natural(self.mean[c] + s * of["half"], c) for s in (-1, 1)]) if floored else None
            columns.append(
                {
                    "tau": self.taus[c - 1] if c else None,
                    "share": self.shares[c],
                    "retrained": n,
                    "value": self.natural(x, c),
                    "statistic": of["T"] if known else None,
                    "floor": ends,
                    "interval": [self.natural(x - wide, c), self.natural(x + wide, c)] if known else None,
                    "smallest": self.natural(excess, c) if floored and self.base[c] + excess <= most else None,
                    "side": self.side(of),
                }
            )
        middle = self.mean[0] if self.crafted_on == "reference" else 0.0
        about = {"quantity": self.quantity, "perturbation": self.name, "form": self.form, "crafted_on": self.crafted_on}
        seeds = [self.natural(v[0], 0) for v in values]
        return {**about, "columns": columns, "seeds": seeds, "neutral": self.natural(middle, 0)}


class Run:
    """The record with the measures derived from its counts: everything that is concluded follows from these."""

    def __init__(self, record: dict[str, Json], derived: dict[str, dict[str, dict[str, Derived]]]) -> None:
        self.record, self.derived, self.methods = record, derived, record["methods"]
        self.scenario, self.form = record["scenario"], record["scenario"]["form"]
        self.sizes, self.settings = self.scenario["sizes"], self.scenario["settings"]
        audited = list(dict.fromkeys(name for row in derived.values() for seed in row.values() for name in seed))
        ordered = [name for name in self.settings["audit"].get("perturbations", []) if name in audited]
        self.perturbations = [*ordered, *sorted(set(audited) - set(ordered))]
        self.parts: dict[tuple[str, str], Part] = {}
        if self.labels("reference") and self.labels("control"):
            for name in self.perturbations:
                for quantity in SETS:
                    if self.audits(self.labels("control")[0], name) and (part := Part(self, name, quantity)).exists:
                        self.parts[name, quantity] = part
        methods = self.methods.items()
        self.retrained = [label for label, row in methods if row["role"] in ("reference", "control")]
        compared = difficulty(self)
        self.fair = compared is None or compared["fair"]
        self.judging = [part for (_, quantity), part in self.parts.items() if quantity != "G"]
        self._share({name for name, _ in self.parts})
        self.blind = self._blind()
        self._share({name for name, _ in self.parts} - set(self.blind))

    def labels(self, role: str) -> list[str]:
        return [label for label, row in self.methods.items() if row["role"] == role]

    def audits(self, label: str, name: str) -> list[Derived]:
        return [seed[name] for seed in self.derived[label].values() if name in seed]

    def _share(self, seeing: set[str]) -> None:
        """Give every column its share of the error."""
        for (name, quantity), part in self.parts.items():
            radii, p, sees = sum(tau > 0 for tau in part.taus), max(len(seeing), 1), name in seeing
            level = (
                LEVEL + (0 if (name, "M") in self.parts and self.fair else MEMORY) + (0 if 0 in part.taus else RADIUS_0)
            )
            each = RADII / radii
            if radii == 1:
                level = each = level + RADII
            zero = RADIUS_0 if seeing else 1.0
            columns = [level / p * sees, *(each / p * sees if tau > 0 else zero for tau in part.taus)]
            part.shares = {"r": columns, "G": columns[:1], "M": [MEMORY / p * sees * self.fair]}[quantity]

    def _blind(self) -> list[str]:
        if not self.labels("original"):
            return []
        seeing, at_zero = set(), False
        for part in self.judging:
            values = part.row_values(self.labels("original")[0])
            for c in range(len(part.base) if values else 0):
                above = part.side(part.judged(values or [], c)) == "above"
                zero = part.quantity == "r" and c > 0 and part.taus[c - 1] == 0
                at_zero |= above and zero
                seeing |= {part.name} if above and not zero else set()
        return [n for n in dict.fromkeys(n for n, _ in self.parts) if n not in seeing] if seeing or at_zero else []

    def noise_floor(self) -> dict[str, Json]:
        floors = {}
        for name in self.perturbations:
            audits = [audit for label in self.labels("control") for audit in self.audits(label, name)]
            if not audits:
                continue
            curves = [
                (a.measures["residual_knowledge"]["low"], a.measures["residual_knowledge"]["high"]) for a in audits
            ]
            ends = []
            for t in range(len(audits[0].taus)):
                at = [x[t] for curve in curves for x in curve]
                if audits[0].crafted_on is None:
                    at = [*at, *(1 / x if x else None for x in at)]
                ends.append((None, None) if None in at else (min(at), max(at)))
            finding = None
            if self.form == "sample" and audits[0].crafted_on != "unlearned" and (name, "r") in self.parts:
                finding = self.parts[name, "r"].finding(self.labels("reference")[0])
            columns = finding["columns"][1:] if finding else []
            for t, column in enumerate(columns):
                ends[t] = tuple(column["floor"] or ends[t])
            low, high = ([end[k] for end in ends] for k in (0, 1))
            floors[name] = {"taus": audits[0].taus, "pairs": len(audits), "low": low, "high": high}
        return floors


# --- verdicts, chips, gates (sections 7 and 8) ---


def judgment(run: Run, label: str) -> dict[str, Json]:
    """Return what the rule says of one row, before gates."""
    sides: dict[str, list[tuple[float, int, tuple[str, str, int]]]] = {"above": [], "below": []}
    p_value, complete, detected = 1.0, False, False
    original = next(iter(run.labels("original")), None)
    for part in run.judging:
        values = part.row_values(label)
        for c in range(len(part.base) if values else 0):
            column = part.judged(values or [], c)
            p_value, complete = min(p_value, column["p"]), complete or part.quantity == "r"
            if side := part.side(column):
                sides[side].append((column["p"], len(sides[side]), (part.name, part.quantity, c)))
        of_original = part.row_values(original) if original else None
        columns = [part.judged(of_original, c) for c in range(len(part.base))] if of_original else []
        detected = detected or any(c["shift"] >= c["detectable"] for c in columns)
    above, below = sides["above"], sides["below"]
    verdict = "MIXED" if above and below else "FOUND" if above else "OVER_FORGOTTEN" if below else ""
    quiet = _telling(run)
    place = min(above or below)[2] if above or below else quiet
    findings: dict[str, dict[str, Json]] = {}
    for (name, quantity), part in run.parts.items():
        if complete and (finding := part.finding(label)):
            findings.setdefault(name, {})[quantity] = finding
    return {
        "verdict": verdict or ("NOT_DETECTED" if complete and detected else "INCONCLUSIVE"),
        "p_value": p_value if complete else None,
        "rests_on": dict(zip(("perturbation", "quantity", "column"), place, strict=True))
        if complete and place
        else None,
        "findings": findings,
        "quiet": quiet,
    }


def _telling(run: Run) -> tuple[str, str, int] | None:
    """Return the level or radius 0 that would show the smallest excess."""
    places: list[tuple[float, int, tuple[str, str, int]]] = []
    for part in run.judging:
        reference = part.finding(run.labels("reference")[0]) if part.quantity == "r" else None
        for c, column in enumerate(reference["columns"] if reference else []):
            if not column["tau"] and column["smallest"] is not None:
                places.append((column["smallest"], len(places), (part.name, "r", c)))
    if places:
        return min(places)[2]
    return next(((name, "r", 0) for name, quantity in run.parts if quantity == "r"), None)


def compared(run: Run, label: str, values_of: Callable[[str], list[Json]], share: float, samples: int | None) -> Json:
    """Compare a measure of a row with the retrained models; None where they cannot be compared."""
    values = values_of(label)
    retrained = [x for other in [*run.labels("reference"), *run.labels("control")] for x in values_of(other)]
    n, seeds = len(retrained), len(values)
    if None in values or None in retrained or n < FEWEST or not seeds or n % seeds:
        return None

    def angle(p: float) -> float:
        return math.asin(math.sqrt(clipped(p))) if samples else p

    scale, least = (100.0, 0.0) if samples else (1.0, 0.0)
    u, others = ([angle(x / scale) for x in part] for part in (values, retrained))
    if samples:
        p, half = mean(retrained) / scale, 1 / (2 * samples)
        least = max(angle(p + half) - angle(p), angle(p) - angle(p - half))
    error = max(deviation(others), least) * math.sqrt(1 / seeds + 1 / n)
    shift, half = mean(u) - mean(others), t_quantile(1 - ERROR * share / 2, n - 1) * error
    statistic = shift / error if error else math.copysign(1e9, shift) if shift else 0.0
    floor = [mean(others) + sign * half for sign in (-1, 1)]
    if samples:
        floor = [scale * math.sin(clipped(x, 0, math.pi / 2)) ** 2 for x in floor]
    made = {"value": mean(values), "floor": floor, "retrained": n, "statistic": clipped(statistic, -1e9, 1e9)}
    return made | {"differs": abs(shift) > half, "below": shift < -half, "points": mean(retrained) - mean(values)}


def chips(run: Run, label: str, of: dict[str, Json], verdict: str) -> tuple[Json, Json]:
    """Return chips and differences of a row with a verdict."""
    findings, tested = of["findings"], run.sizes.get("test") or 10**9
    levels = [column for by in findings.values() if "r" in by for column in by["r"]["columns"]]
    name, quantity, c = of["quiet"] or ("", "", 0)
    least = findings.get(name, {}).get(quantity, {"columns": {c: {"smallest": None}}})["columns"][c]["smallest"]
    confidence = {"retrained": max((x["retrained"] for x in levels), default=0), "smallest": least, "form": run.form}
    memory: dict[str, Json] = {"state": "cannot tell"}
    of_memory = [
        (p, by["M"]["columns"][0]) for p, by in findings.items() if "M" in by and by["M"]["columns"][0]["floor"]
    ]
    above = [item for item in of_memory if item[1]["side"] == "above"]
    known = [item for item in of_memory if item[1]["smallest"] is not None]
    if verdict != "NOT_COMPARABLE" and (above or known):
        p, column = max(above, key=lambda i: i[1]["statistic"]) if above else min(known, key=lambda i: i[1]["smallest"])
        memory = {"state": "found" if above else "not found", "perturbation": p}
        memory |= {"value": column["value"], "smallest": column["smallest"]}

    def metric(name: str) -> Callable[[str], list[Json]]:
        return lambda row: [(s.get("metrics") or {}).get(name) for s in run.methods[row]["per_seed"].values()]

    def probe(spec: str) -> Callable[[str], list[Json]]:
        return lambda row: [
            s.get("probes", {}).get(spec, {}).get("value") for s in run.methods[row]["per_seed"].values()
        ]

    accuracy = compared(run, label, metric("test_accuracy"), 1.0, tested)
    utility: dict[str, Json] = {"state": "cannot tell"}
    if accuracy:
        utility = {"state": "lost" if accuracy["below"] else "kept", "points": accuracy["points"]}
    specs = [s for s in run.methods[label].get("probes", {}) if s.partition(":")[0] in ("depth", "recovery")]
    asked = [
        ("mia_accuracy", metric("mia_accuracy"), run.sizes.get("forget")),
        ("test_accuracy", metric("test_accuracy"), tested),
    ]
    asked += [(m, metric(m), None) for m in ("forget_margin", "margin_gap", "heldout_auc")] + [
        (s, probe(s), None) for s in specs
    ]
    rows = [(m, compared(run, label, values, 0.05 / 9 / ERROR, n)) for m, values, n in asked]
    differences = [{"measure": m, **without(row, "below", "points")} for m, row in rows if row]
    return {"confidence": confidence, "memory": memory, "utility": utility}, differences


def accuracies(run: Run, labels: Iterable[str], metric: str) -> Floats:
    results = [s.get("metrics") for label in labels for s in run.methods[label]["per_seed"].values()]
    return [metrics[metric] for metrics in results if metrics]


def low_end(first: Floats, second: Floats, n: int) -> float:
    """Return the low end of the difference of two mean accuracies; -inf without values."""
    if not first or not second:
        return -math.inf
    gap, df = mean(first) - mean(second), len(first) + len(second) - 2
    low = gap - normal_quantile(0.95) * math.sqrt(
        sum(m * (100 - m) for m in (mean(first), mean(second))) / n if n else 0
    )
    if df:
        squares = sum((x - mean(of)) ** 2 for of in (first, second) for x in of)
        error = math.sqrt(squares / df * (1 / len(first) + 1 / len(second)))
        low = min(low, gap - t_quantile(0.95, df) * error)
    return low


def auc_of(run: Run, label: str) -> tuple[float, float] | None:
    """Return the mean AUC of margins over seeds and its largest error; None unless every seed has both."""
    metrics = [s["metrics"] for s in run.methods[label]["per_seed"].values() if s.get("metrics")]
    values = [(m.get("heldout_auc"), m.get("heldout_auc_error")) for m in metrics]
    if not values or any(auc is None or not error for auc, error in values):
        return None
    return mean(auc for auc, _ in values), max(error for _, error in values)


def difficulty(run: Run) -> dict[str, Json] | None:
    """Return how hard forgotten samples are for retrained models compared with held-out ones."""
    values = [auc for label in run.retrained if (auc := auc_of(run, label))]
    if not values:
        return None
    center, half = mean(value for value, _ in values), 1.96 * max(error for _, error in values)
    low, high = clipped(center - half), clipped(center + half)
    return {"auc": center, "low": low, "high": high, "fair": low <= 0.6 and high >= 0.4}


def gates(run: Run, original_verdict: str) -> list[tuple[str, bool | None]]:
    """Return name and outcome of every gate, in their order."""
    if not run.labels("original") or not run.labels("reference"):
        return []
    original, reference = run.labels("original")[0], run.labels("reference")[0]
    test, forget = run.sizes.get("test", 0), run.sizes.get("forget", 0)
    retain = run.sizes.get("retain", 0)
    made: list[tuple[str, bool | None]] = [("retrained", False)] if run.settings.get("surrogates") else []
    recipes = [run.methods[label].get("settings", {}) for label in (original, reference)]
    unknown = any("trained_by" in recipe or "surrogates" in recipe for recipe in recipes)
    results = run.methods[reference]["per_seed"].values()
    seen = any(audit["settings"].get("seen") for result in results for audit in result["audits"].values())
    made += [("recipe", None if unknown else recipes[0] == recipes[1]), ("seen", not seen)]
    weights = [s.get("weights") for label in run.retrained for s in run.methods[label]["per_seed"].values()]
    if all(weights):
        made.append(("seeds", len(set(weights)) == len(weights)))
    of_original = {name: accuracies(run, [original], name) for name in ("retain_accuracy", "test_accuracy")}
    fit = low_end(of_original["retain_accuracy"], accuracies(run, [reference], "retain_accuracy"), retain)
    made.append(("retain fit", fit <= 1))
    if forget <= 0.2 * (forget + retain):
        retrained = accuracies(run, [reference, *run.labels("control")], "test_accuracy")
        made.append(("utility", low_end(of_original["test_accuracy"], retrained, test) <= 3))
    made.append(("original", original_verdict not in ("OVER_FORGOTTEN", "MIXED")))
    for control in run.labels("control"):
        one, two = (accuracies(run, [label], "test_accuracy") for label in (reference, control))
        made.append(("controls", max(low_end(one, two, test), low_end(two, one, test)) <= 2))
    aucs, known = {label: auc_of(run, label) for label in run.retrained}, auc_of(run, original)
    for auc in aucs.values():
        if known and None not in aucs.values():
            value, error = auc or (0.5, 1.0)
            p = min(1.0, len(aucs) * statistics.NormalDist().cdf((0.5 - value) / error))
            made.append(("leak", not (p < LEAK and value - 0.5 > (known[0] - 0.5) / 2)))
    return made


# --- summaries, probes (sections 7, 9) ---

ACCURACIES = ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy")


def summary(run: Run, label: str) -> dict[str, Json]:
    """Return the means of a row over its seeds, and its average gap."""
    of: list[list[dict[str, Json]]] = [
        [s.get("metrics") or {} for s in run.methods[x]["per_seed"].values()]
        for x in (label, *run.labels("reference")[:1])
    ]
    made: dict[str, Json] = {}
    for name in (*ACCURACIES, "mia_entropy_accuracy"):
        values: list[Json] = [metrics.get(name) for metrics in of[0]]
        if values and None not in values:
            spread = math.sqrt(mean((v - mean(values)) ** 2 for v in values))
            made[name] = {"mean": mean(values), "std": spread, "n": len(values)}
    if len(of) > 1 and all(None not in [m.get(name) for m in of[1]] and name in made for name in ACCURACIES):
        gaps = [abs(made[name]["mean"] - mean(m[name] for m in of[1])) for name in ACCURACIES]
        made["average_gap"] = mean(gaps)
        seeds = zip(*of, strict=False)
        if len(of[0]) == len(of[1]):
            made["average_gap_per_seed"] = mean(mean(abs(a[n] - b[n]) for n in ACCURACIES) for a, b in seeds)
    relearn: list[Json] = [metrics.get("relearn_epochs") for metrics in of[0]]
    if relearn and None not in relearn:
        median = statistics.median(math.inf if r["value"] is None else r["value"] for r in relearn)
        censored = sum(r["censored"] for r in relearn)
        made["relearn_epochs"] = {
            "median": None if math.isinf(median) else float(median),
            "censored": censored,
            "n": len(relearn),
        }
    return made


def probe_row(run: Run, label: str, spec: str) -> dict[str, Json] | None:
    """Return what follows for a probe from its values by seed; None for probes that are taken on trust."""
    name, forget = spec.partition(":")[0], run.sizes.get("forget", 0)
    if name not in ("recovery", "depth", "features", "worst_case"):
        return None
    least = 0.5 / forget if name in ("recovery", "worst_case") and forget else 0.0
    roles = ("control",) if name == "worst_case" else ("reference", "control")

    def of(row: str, entry: str) -> list[Json]:
        probes = [s.get("probes", {}) for s in run.methods[row]["per_seed"].values()]
        return [p[spec].get(entry) for p in probes if spec in p]

    values = of(label, "value")
    if not values or None in values:
        return {"value": None}
    made: dict[str, Json] = {"value": mean(values)}
    if None not in of(label, "low") + of(label, "high"):
        made |= {"low": min(of(label, "low")), "high": max(of(label, "high"))}
    others = [
        x for role in roles for row in run.labels(role) if row != label for x in of(row, "value") if x is not None
    ]
    made |= {
        "retrained": len(others),
        "floor": [min(others), max(others)] if others else None,
        "p": None,
        "found": None,
    }
    if len(others) >= FEWEST:
        s, distance = max(deviation(others), least), mean(values) - mean(others)
        error = s * math.sqrt(1 / len(values) + 1 / len(others))
        made["p"] = t_cdf(-distance / error, len(others) - 1) if error else float(distance <= 0)
        made["found"] = made["p"] <= 0.05
    return made


def decoy_audit(audit: dict[str, Json]) -> dict[str, Json]:
    """Return what the scores of decoys and of held-out samples come to (section 9)."""
    out: dict[str, Json] = dict.fromkeys(("p", "difference", "detectable", "original_p", "original_difference"))
    if not audit["exchangeability"]["passed"]:
        return out | {"conclusion": "REFUSED"}
    scores, generator, rows_of = audit["scores"], random.Random(audit["seed"]), dict[int, list[int]]()
    for row, label in enumerate(scores["labels"]):
        rows_of.setdefault(label, []).append(row)
    classes = [(code, rows, sum(scores["decoy"][row] for row in rows)) for code, rows in enumerate(rows_of.values())]
    weights = [decoys * (len(rows) - decoys) / len(rows) for _, rows, decoys in classes]
    models = {"": scores["unlearned"], "original_": scores.get("original")}
    centered = {
        model: {row: score[row] - mean(score[k] for k in rows) for _, rows, _ in classes for row in rows}
        for model, score in models.items()
        if score is not None
    }
    observed = {model: sum(a[row] for row in a if scores["decoy"][row]) for model, a in centered.items()}
    as_large = dict.fromkeys(centered, 1)
    for _ in range(audit["permutations"]):
        spend(len(scores["labels"]) // 2)
        drawn: list[int] = []
        for code, rows, decoys in classes:
            drawn += [row for _, row in sorted((code + generator.random(), row) for row in rows)[:decoys]]
        for model, a in centered.items():
            as_large[model] += sum(a[row] for row in drawn) >= observed[model] - 1e-9
    for model in centered:
        out[f"{model}p"] = as_large[model] / (1 + audit["permutations"])
        out[f"{model}difference"] = observed[model] / sum(weights)
    spread = [sum(centered[""][row] ** 2 for row in rows) / max(len(rows) - 1, 1) for _, rows, _ in classes]
    deviation_of_sum = math.sqrt(sum(w * s for w, s in zip(weights, spread, strict=True)))
    out["detectable"] = (normal_quantile(0.95) + normal_quantile(POWER)) * deviation_of_sum / sum(weights)
    visible = "original_" in centered and out["original_p"] <= 0.05 and out["original_difference"] >= out["detectable"]
    return out | {"conclusion": "FOUND" if out["p"] <= 0.05 else "NOT_DETECTED" if visible else "INCONCLUSIVE"}


# --- the page (section 11) ---

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")


class Page(HTMLParser):
    """Marked elements of a page with their texts, and how many other numbers it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.marks: list[tuple[str, str | None, list[str]]] = []
        self.other = 0
        self._open: list[tuple[str, list[str] | None]] = []  # tag, text of a mark
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        text: list[str] | None = None
        if paths := given.get("data-of"):
            text = []
            self.marks.append((paths, given.get("data-times"), text))
        if tag not in VOID:
            self._open.append((tag, text))

    def handle_endtag(self, tag: str) -> None:
        if any(tag == name for name, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        texts = [text for _, text in self._open if text is not None]
        for text in texts:
            text.append(data)
        if not texts and not any(tag in ("script", "style") for tag, _ in self._open):
            self.other += len(NUMBER.findall(data))


def resolved(record: Json, path: str) -> Json:
    for key in map(unquote, path.split("/")):
        record = record[int(key)] if isinstance(record, list) else record[key]
    return record


def page_differences(page: Page, record: dict[str, Json], rows: int) -> Iterator[str]:
    """Yield what the page shows that the record does not say."""
    if len(page.marks) < 2 * rows:
        yield f"report.html: expected at least {2 * rows} marked elements, got {len(page.marks)}"
    for paths, times, pieces in page.marks:
        text, shown = "".join(pieces), paths.split()
        try:
            values = [resolved(record, path) for path in shown]
            if isinstance(values[0], str):
                if LABELS[values[0]] not in text:
                    yield f"report.html: {paths} is {values[0]}, and the page shows {text.strip()[:60]!r}"
                continue
            numbers = NUMBER.findall(text)
            exact = [value * float(times or 1) for value in values]
            decimals = [len(n.partition(".")[2]) for n in numbers]
            if len(numbers) != len(exact) or any(
                abs(float(n) - x) > 0.5001 * 10**-k for n, x, k in zip(numbers, exact, decimals, strict=True)
            ):
                yield f"report.html: {paths} is {exact}, and the page shows {text.strip()[:60]!r}"
        except (KeyError, IndexError, TypeError, ValueError):
            yield f"report.html: a mark points nowhere: {paths[:120]!r}"


# --- the verifier ---

RECORD_KEYS = {
    "schema",
    "created",
    "versions",
    "scenario",
    "seeds",
    "warnings",
    "notes",
    "noise_floor",
    "methods",
    "failed",
}
RECORD_KEYS |= {
    "rule_version",
    "gates",
    "difficulty",
    "decoys",
    "blind",
    "judgments",
    "files",
    "sequence",
    "record_sha256",
    "compute",
}
MISSING = object()


class Verifier:
    """Checks one pack; `differences`, `checked` and `not_checked` say what came out."""

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self.differences: list[str] = []
        self.checked: list[str] = []
        self.members, self.not_checked, self.page_checked = members, list(ON_TRUST), False
        self.manifest = parsed("manifest.json", members["manifest.json"])
        self.record = parsed("results.json", members["results.json"], ordered=False)
        for name, value, schema in (
            ("manifest.json", self.manifest, PACK_SCHEMA),
            ("results.json", self.record, RECORD_SCHEMA),
        ):
            if not isinstance(value, dict) or value.get("schema") != schema:
                raise NoPackError(f"{name}: expected the schema {schema}, the one that this verifier knows")
        rows = self.record.get("methods")
        if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
            raise NoPackError("results.json: expected rows")
        if len(rows) > MOST_ROWS or sum(len(row.get("per_seed") or ()) for row in rows.values()) > MOST_SEEDS:
            raise NoPackError(f"expected at most {MOST_ROWS} rows and {MOST_SEEDS} models")
        self.counts: dict[str, Counts] = {}
        steps = (self.hashes, self.read_counts, self.measures, self.decoys, self.conclusions, self.page)
        for step in steps:
            try:
                step()
            except (
                KeyError,
                IndexError,
                TypeError,
                ValueError,
                AttributeError,
                ZeroDivisionError,
                OverflowError,
            ) as error:
                self.differences.append(f"{step.__name__}: not as the format says ({type(error).__name__}: {error})")

    def compare(self, where: str, claimed: Json, derived: Json) -> None:
        """Note a difference between what the pack says and what follows; keys that do not follow are passed over."""
        if isinstance(derived, dict) and isinstance(claimed, dict):
            for key, value in derived.items():
                if key in claimed or value is not None:
                    self.compare(f"{where}/{key}", claimed.get(key, MISSING), value)
        elif isinstance(derived, list | tuple) and isinstance(claimed, list) and len(claimed) == len(derived):
            for k, pair in enumerate(zip(claimed, derived, strict=True)):
                self.compare(f"{where}/{k}", *pair)
        elif type(derived) is float and type(claimed) is float:
            if not abs(derived - claimed) <= TOLERANCE * max(1.0, abs(derived), abs(claimed)):
                self.differences.append(f"{where}: expected {derived!r}, got {claimed!r}")
        elif type(claimed) is not type(derived) or claimed != derived:
            shown = "nothing" if claimed is MISSING else repr(claimed)[:80]
            self.differences.append(f"{where}: expected {repr(derived)[:80]}, got {shown}")

    def hashes(self) -> None:
        names = sorted(set(self.members) - {"manifest.json"})
        wanted = {n: {"sha256": sha256(content), "bytes": len(content)} for n in names if (content := self.members[n])}
        self.compare("manifest/files", sorted(self.manifest["files"]), sorted(wanted))
        self.compare("manifest/files", self.manifest["files"], wanted)
        lines = "".join(f"{name} {of['sha256']}\n" for name, of in sorted(wanted.items()))
        self.compare("manifest/root", self.manifest["root"], sha256(lines.encode()))
        self.compare("manifest/seal", self.manifest["seal"], sha256(written(without(self.manifest, "seal"))))
        own = sha256(written(without(self.record, "record_sha256")))
        self.compare("results/record_sha256", self.record["record_sha256"], own)
        self.checked.append(
            f"{len(wanted)} files have the hashes and sizes that the manifest lists; root, seal and record agree"
        )

    def read_counts(self) -> None:
        for name in sorted(self.members):
            if name.startswith("counts/"):
                try:
                    self.counts[name] = read_counts(self.members[name])
                except (ValueError, TypeError, KeyError) as error:
                    self.differences.append(f"{name}: {error}")

    def measures(self) -> None:
        """Derive all measures of all audits, and compare."""
        self.derived: dict[str, dict[str, dict[str, Derived]]] = {}
        used: list[str] = []
        audits: list[tuple[str, str, str, str, dict[str, Json], Derived]] = []
        shown: dict[tuple[str, str], tuple[Counts, Counts | None]] = {}
        for label, row in self.record["methods"].items():
            for seed, result in row["per_seed"].items():
                for name, audit in result["audits"].items():
                    files = [audit["counts"], audit.get("heldout", {}).get("counts")]
                    used += [file for file in files if file is not None]
                    forget, heldout = self.counts[files[0]], self.counts[files[1]] if files[1] else None
                    derived = Derived(audit["settings"], forget, heldout)
                    self.derived.setdefault(label, {}).setdefault(seed, {})[name] = derived
                    audits.append(
                        (f"results/methods/{label}/per_seed/{seed}/audits/{name}", label, name, seed, audit, derived)
                    )
                    first = shown.setdefault((seed, name), (forget, heldout))
                    crafted = derived.crafted_on == "unlearned"
                    for a, b in zip(first, (forget, heldout), strict=True):
                        if (a is None) != (b is None) or (
                            a and b and (a.ids != b.ids or (not crafted and not _same_reference(a, b)))
                        ):
                            self.differences.append(
                                f"{audits[-1][0]}: other samples or references than those of the other rows"
                            )
                    if (
                        row["role"] == "reference"
                        and label == "retrain"
                        and any(r.model != r.reference for r in forget.radii)
                    ):
                        self.differences.append(f"{audits[-1][0]}: the reference differs from itself")
                    self._check_draws(audits[-1][0], audit, derived)
        self.compare("counts", sorted(used), sorted(name for name in self.members if name.startswith("counts/")))
        roles = {label: row["role"] for label, row in self.record["methods"].items()}
        for where, _, name, _, audit, derived in audits:
            controls = [
                d.measures["difference"] for _, other, n, _, _, d in audits if roles[other] == "control" and n == name
            ]
            if controls:
                ends = zip(*(curve for c in controls for curve in (c["low"], c["high"])), strict=True)
                derived.add_completeness([max(map(abs, at)) for at in ends])
            self.compare(where, audit, derived.measures)
        ids = sorted({i for counts in self.counts for i in self.counts[counts].ids if "heldout" not in counts})
        request = {"size": len(ids), "ids_hmac_root": sha256("".join(f"{i}\n" for i in ids).encode())}
        self.compare("manifest/request", self.manifest["request"], request)
        models = [f"{label}/{seed}" for label, row in self.record["methods"].items() for seed in row["per_seed"]]
        self.compare("manifest/models", sorted(self.manifest["models"]), sorted(models))
        self.checked.append(
            f"measures and intervals of {len(audits)} audits follow from their counts (bootstrap intervals apart)"
        )

    def _check_draws(self, where: str, audit: dict[str, Json], derived: Derived) -> None:
        settings, asked = audit["settings"], self.record["scenario"]["settings"]["audit"]
        most = max((d for d, tau in zip(derived.measures["draws"], derived.taus, strict=True) if tau > 0), default=None)
        if not settings.get("enumerated") and settings["draws"] is not None:
            self.compare(f"{where}/settings/draws", settings["draws"], most)
            if asked.get("draws") is not None and not asked.get("until"):
                self.compare(f"{where}/settings/draws", settings["draws"], asked["draws"])

    def decoys(self) -> None:
        audits = self.record.get("decoys") or {}
        for label, audit in audits.items():
            self.compare(f"results/decoys/{label}", audit, decoy_audit(audit))
        self.checked += [f"p-values and conclusions of {len(audits)} decoy audits follow from scores"] if audits else []

    def conclusions(self) -> None:
        """Derive floors, gates, verdicts, chips, summaries and the manifest, and compare."""
        run, judged, record = Run(self.record, self.derived), {}, self.record
        for label, row in record["methods"].items():
            self.compare(f"results/methods/{label}/summary", row["summary"], summary(run, label))
            for spec, claimed in row.get("probes", {}).items():
                self.compare(f"results/methods/{label}/probes/{spec}", claimed, probe_row(run, label, spec) or {})
        if record.get("rule_version") != RULE_VERSION:
            self.differences.append(
                f"results/rule_version: expected {RULE_VERSION}, got {record.get('rule_version')}; verdicts not checked"
            )
            return
        raw = {label: judgment(run, label) for label in record["methods"]}
        outcomes = gates(run, raw[run.labels("original")[0]]["verdict"] if run.labels("original") else "")
        refused = any(passed is False for _, passed in outcomes)
        refused = refused and bool(run.settings.get("surrogates") or not run.settings.get("accept_reference"))
        for label, of in raw.items():
            retrained = record["methods"][label]["role"] in ("reference", "control")
            verdict = None if retrained else "NOT_COMPARABLE" if refused else of["verdict"]
            judged[label] = without(of, "quiet") | {"verdict": verdict}
            if verdict:
                shown, differences = chips(run, label, of, verdict)
                judged[label] |= {"chips": shown, "differences": differences}
        claimed = {label: _with_quantity(of) for label, of in record["judgments"].items()}
        self.compare("results/judgments", claimed, judged)
        self.compare("results/gates", [[g["name"], g["passed"]] for g in record["gates"]], [list(g) for g in outcomes])
        self.compare("results/difficulty", record.get("difficulty"), difficulty(run))
        self.compare("results/blind", record["blind"], run.blind)
        self.compare("results/noise_floor", record["noise_floor"], run.noise_floor())
        self.checked.append(f"noise floors, gates, p-values, verdicts and chips of {len(judged)} rows")
        unnamed = len(set(record) - RECORD_KEYS)
        self.not_checked += [f"{unnamed} keys of the record that the format does not name"] if unnamed else []

    def page(self) -> None:
        page = Page(self.members["report.html"].decode())
        if not page.marks:
            return
        rows = sum(of["verdict"] is not None for of in self.record["judgments"].values())
        self.differences += page_differences(page, self.record, rows)
        self.page_checked = True
        self.checked.append(f"{len(page.marks)} marked places of the page show what the record says")
        self.not_checked.append(f"sentences and pictures of the page, and {page.other} other numbers in its text")


def _same_reference(a: Counts, b: Counts) -> bool:
    for one, two in zip(a.radii, b.radii, strict=True):
        cells = zip(one.draws, two.draws, one.reference, two.reference, strict=True)
        if any(d == e and x != y for d, e, x, y in cells):
            return False
    return True


def _with_quantity(judgment: dict[str, Json]) -> dict[str, Json]:
    """Return a judgment whose place names its quantity, r where it is left out."""
    place = judgment.get("rests_on")
    return judgment if not place else judgment | {"rests_on": {"quantity": "r", "column": 0} | place}


def main() -> int:
    parser = argparse.ArgumentParser(description="Check an evidence pack of Residuum with Python's standard library.")
    parser.add_argument("pack", type=Path)
    parser.add_argument("--accept-page", action="store_true", help="accept a page that cannot be checked")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    try:
        result = Verifier(Members(options.pack))
    except NoPackError as error:
        print(f"{options.pack}: no evidence pack: {error}", file=sys.stderr)
        return 2
    sound = not result.differences and (result.page_checked or options.accept_page)
    unseen = [] if result.page_checked else ["the page: it has no marks that could be compared"]
    if options.json:
        parts = {
            "differences": result.differences,
            "checked": result.checked,
            "not_checked": [*unseen, *result.not_checked],
        }
        print(json.dumps({**parts, "page": result.page_checked, "sound": sound}, indent=1))
    else:
        lines = [*(f"not checked: {text}" for text in unseen), *result.differences]
        lines += [f"checked: {text}" for text in result.checked]
        print("\n".join([*lines, *(f"not checked: {text}" for text in result.not_checked)]))
    verdict = "everything that was checked agrees" if sound else f"{len(result.differences)} differences"
    print(f"{options.pack}: {verdict}", file=sys.stderr)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
