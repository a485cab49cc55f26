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
import operator
import random
import re
import statistics
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

Json = Any
Pair = tuple[Json, Json]

PACK_SCHEMA, RECORD_SCHEMA, RULE_VERSION = "residuum.pack/4", "residuum.results/4", 5
MOST_MEMBERS, MOST_DIRECTORY, MOST_MEMBER, MOST_TOTAL = 4000, 2**20, 16 * 2**20, 256 * 2**20
MOST_RATIO, ALWAYS_ALLOWED, MOST_BRACKETS, MOST_IN_RECORD, PIECE = 50, 16 * 2**20, 500_000, 200_000, 2**20
MOST_ROWS, MOST_SEEDS, MOST_STEPS = 500, 5_000, 3_000_000
NEEDED = ("manifest.json", "results.json", "report.html")
MEMBER = re.compile(r"manifest\.json|results\.json|report\.html|counts/[0-9]{4}(-heldout)?\.json")
ERROR, LEVEL, RADIUS_0, RADII, POWER, FEWEST, LEAK = 0.035, 0.2, 0.7, 0.1, 0.8, 3, 0.001
LABELS = {
    "NOT_COMPARABLE": "reference not comparable",
    "FOUND": "residual knowledge found",
    "MIXED": "mixed",
    "OVER_FORGOTTEN": "over-forgotten",
    "INCONCLUSIVE": "inconclusive",
    "NOT_DETECTED": "not detected",
}
ACCURACIES = ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy")
RECORD_KEYS = set(
    "schema created versions scenario seeds warnings notes noise_floor methods failed rule_version gates difficulty "
    "decoys blind judgments files sequence record_sha256 compute".split()
)
MANIFEST_KEYS = set("schema name tool request models data files root seal left_out non_claims threat_model".split())
ON_TRUST = (
    "the counts themselves: without models, data and key nobody can count again",
    "accuracies, membership attacks, re-learn times and values of probes by seed; scores of decoys",
    "bootstrap intervals, which need numpy's generator; noise_check, first_request and measures",
    "seconds, passes, dates, versions, recipes, warnings, notes and doubts",
    "hashes and architectures of weights, what models were trained on, fingerprints and near-duplicates",
    "left_out, non_claims and threat_model; whether rows, seeds or audits are missing",
)
ENDS = "value low high sample_low sample_high"
ENTRIES = {  # of measures with more than one number at a radius, in the order in which they are derived
    "residual_knowledge": "pooled low high mean_of_ratios smoothed infinite undefined",
    **dict.fromkeys(("difference", "prevalence", "disagreement", "unlearn_accuracy"), "value low high"),
    **{"heldout": "rate reference_rate", "forgotten": "rate reference_rate", "nearer": "value forgotten heldout"},
    **{"class_knowledge": ENDS, "memory": ENDS, "memory_difference": ENDS},
    "completeness": "value low high draw_low draw_high gap_low floor",
}
MISSING = object()


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


NORMAL = statistics.NormalDist()
normal_quantile = NORMAL.inv_cdf


@cache
def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or 1e-300)
    fraction = d
    for i in range(2, 200_000):
        m = i // 2
        factor = (-(a + m) * (a + b + m) if i % 2 else m * (b - m)) / ((a + i - 1) * (a + i)) * x
        c, d = 1 + factor / c or 1e-300, 1 / (1 + factor * d or 1e-300)
        fraction *= c * d
        if i % 2 and abs(c * d - 1) < 1e-16:
            break
    spend(m)
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta(a, b)) * fraction / a


@cache
def beta_quantile(p: float, a: float, b: float) -> float:
    """Return x with I_x(a, b) = p: Newton's steps, and bisection where they leave the bracket."""
    low, high, x = 0.0, 1.0, min(max(a / (a + b), 1e-12), 1 - 1e-12)
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


@cache
def binomial_tail(u: int, n: int) -> float:
    """Return Pr[Bin(n, 1/2) >= u], exact where it can be: p n / k may be 0.05 itself."""
    if u == 0 or n > 1000:
        return beta_cdf(0.5, u, n - u + 1) if u else 1.0
    return float(sum(math.comb(n, k) for k in range(u, n + 1)) / 2**n)


# --- numbers, one for each sample, radius or column ---


def each(function: Callable[[Any, Any], float]) -> Callable[["Vector", Json], "Vector"]:
    return lambda one, other: Vector(map(function, one, other if isinstance(other, Vector) else repeat(other)))


class Vector(tuple[float, ...]):
    """Numbers whose arithmetic is element by element, with a vector or one number."""

    __add__ = each(operator.add)
    __sub__ = each(operator.sub)
    __mul__ = each(operator.mul)
    __truediv__ = each(operator.truediv)

    def clipped(self) -> "Vector":
        return Vector(map(clipped, self))

    def at(self, places: Iterable[int]) -> "Vector":
        return Vector(self[i] for i in places)


def mean(values: Iterable[float]) -> float:
    values = tuple(values)
    return math.fsum(values) / len(values)


def means(rows: Iterable[Iterable[float]]) -> Vector:
    return Vector(map(mean, zip(*rows, strict=True)))


def deviation(values: Iterable[float]) -> float:
    """Return the standard deviation with one degree of freedom less than numbers; 0 for one number."""
    values = Vector(values)
    apart = values - mean(values)
    return math.sqrt(math.fsum(apart * apart) / (len(values) - 1)) if len(values) > 1 else 0.0


def clipped(x: float, low: float = 0.0, high: float = 1.0) -> float:
    return min(max(x, low), high)


def ratio(a: float, b: float) -> float | None:
    return a / b if b else None


# --- the file: members, JSON, hashes (sections 1 to 3) ---


class Members:
    """The members of a pack within the limits of the format, unpacked anew whenever one is asked for."""

    def __init__(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(max(size - 42, 0))
                tail = file.read()
            before, end = tail[:-22], tail[-22:]
            if end[:4] != b"PK\5\6" or before[:4] == b"PK\6\7" or int.from_bytes(end[12:16], "little") > MOST_DIRECTORY:
                raise NoPackError("expected a .zip file without comment or zip64, with a directory of at most 1 MiB")
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise NoPackError(f"cannot be read as a .zip file: {error}") from None
        infos = self._archive.infolist()
        self._infos = {info.filename: info for info in infos}
        self.names = sorted(self._infos)
        if len(infos) > MOST_MEMBERS or len(self._infos) < len(infos):
            raise NoPackError(f"expected at most {MOST_MEMBERS} members, each of them once")
        if wrong := next((name for name in self._infos if not MEMBER.fullmatch(name)), None):
            raise NoPackError(f"expected members of an evidence pack, got {wrong[:80]!r}")
        if not {*NEEDED} <= set(self._infos):
            raise NoPackError(f"expected {', '.join(NEEDED)} in the pack")
        if any(info.compress_type not in (0, 8) or info.flag_bits & 1 for info in infos):
            raise NoPackError("expected members that are stored or deflated, and not encrypted")
        allowed = min(MOST_TOTAL, max(ALWAYS_ALLOWED, MOST_RATIO * size))
        if sum(info.file_size for info in infos) > allowed or any(info.file_size > MOST_MEMBER for info in infos):
            raise NoPackError(f"expected at most {MOST_MEMBER} bytes in a member and {allowed} in all")
        lists = {name: sum(p.count(b"[") + p.count(b"{") for p in self._pieces(name)) for name in self._infos}
        most = max(lists["results.json"], lists["manifest.json"])
        if sum(lists.values()) - lists["report.html"] > MOST_BRACKETS or most > MOST_IN_RECORD:
            raise NoPackError("expected fewer lists and objects")

    def _pieces(self, name: str) -> Iterator[bytes]:
        left = self._infos[name].file_size
        try:
            with self._archive.open(name) as stream:
                while left >= 0 and (piece := stream.read(PIECE)):
                    left -= len(piece)
                    yield piece
        except Exception as error:  # zlib's error has no base of its own
            raise NoPackError(f"{name} cannot be unpacked: {error}") from None
        if left:
            raise NoPackError(f"{name} has another size than the pack says")

    def __getitem__(self, name: str) -> bytes:
        return b"".join(self._pieces(name))


def written(value: Json, *, ordered: bool = True) -> bytes:
    """Return JSON in the spelling of the format; canonical if the keys are `ordered`."""
    text = json.dumps(value, sort_keys=ordered, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def parsed(name: str, content: bytes, *, ordered: bool = True) -> Json:
    try:
        value = json.loads(content)
        if written(value, ordered=ordered) == content and isinstance(value, dict):
            return value
    except (ValueError, RecursionError):
        pass  # refused below, as every other spelling is
    raise NoPackError(f"{name}: expected a JSON object in the spelling of the format")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def without(value: dict[str, Json], *keys: str) -> dict[str, Json]:
    return {key: part for key, part in value.items() if key not in keys}


# --- counts (section 4) ---


class Radius:
    """The counts at one radius, a number for each sample: draws, and how many showed that a model is right."""

    def __init__(self, patterns: list[Vector], same: Vector) -> None:
        self.patterns, self.same = patterns, same
        self.draws, self.model, self.reference, self.both = (self._right(bits) for bits in (0, 2, 1, 3))
        self.pm, self.pa = self.model / self.draws, self.reference / self.draws
        self.po = self._right(4) / self.draws if len(patterns) == 8 else None

    def _right(self, bits: int) -> Vector:
        shown = (counts for k, counts in enumerate(self.patterns) if k & bits == bits)
        return Vector(map(sum, zip(*shown, strict=True)))

    def variance(self, r: float, weights: Vector | float) -> float:
        """Return V(r, w) of section 6."""
        d, m, a, b = self.draws, self.model, self.reference, self.both
        n = d + 0.2
        q11, q10, q01 = (b + 0.05) / n, (m - b + 0.05) / n, (a - b + 0.05) / n
        first = q11 * (1 - r) + q10 - q01 * r
        v = q11 * (1 - r) ** 2 + q10 + q01 * (r * r) - first * first
        return math.fsum(v * weights * weights * n / ((n - 1) * d))


class Counts(NamedTuple):
    """One counts file."""

    ids: list[str]
    labels: list[int]
    taus: list[float]
    radii: list[Radius]

    def of_classes(self, classes: set[int]) -> "Counts":
        """Return the counts of the samples of some classes."""
        kept = [i for i, label in enumerate(self.labels) if label in classes]
        radii = [Radius([p.at(kept) for p in r.patterns], r.same.at(kept)) for r in self.radii]
        return Counts([self.ids[i] for i in kept], [self.labels[i] for i in kept], self.taus, radii)


def read_counts(content: bytes) -> Counts:
    """Return a counts file; a ValueError says which rule it breaks."""
    table = parsed("counts", content)
    if sorted(table) != ["ids", "joint", "labels", "same_prediction", "taus"]:
        raise ValueError("expected the keys ids, joint, labels, same_prediction and taus")
    ids, joint, labels, same, taus = (table[key] for key in sorted(table))
    if ids != sorted(set(ids)) or len(labels) != len(ids) or not all(type(tau) is float for tau in taus):
        raise ValueError("expected different ids in order, a label for each, and radii")
    sizes = {len(cell) for row in joint for cell in row}
    widths = {len(row) for row in chain(joint, same)} - {len(taus)}
    if len(joint) != len(ids) or len(same) != len(ids) or widths or sizes not in ({4}, {8}, set()):
        raise ValueError("expected a list of 4 or 8 patterns for each sample and radius")
    numbers = chain(labels, chain.from_iterable(same), chain.from_iterable(chain.from_iterable(joint)))
    if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
        raise ValueError("expected whole numbers of at least 0")
    radii = []
    for t in range(len(taus)):
        patterns = [Vector(row[t][k] for row in joint) for k in range(max(sizes, default=8))]
        if not all(map(sum, zip(*patterns, strict=True))):
            raise ValueError("expected one draw or more")
        r = Radius(patterns, Vector(row[t] for row in same))
        most = r.draws - r.model - r.reference + r.both + r.both
        if not all(b <= s <= x for b, s, x in zip(r.both, r.same, most, strict=True)):
            raise ValueError("expected as many equal answers as the patterns allow")
        radii.append(r)
    return Counts(ids, labels, taus, radii)


# --- measures of an audit (section 6) ---


def log_interval(x: float | None, variance: float | None, z: float) -> Pair:
    if x is None or variance is None:
        return None, None
    half = z * math.sqrt(variance)
    return (x * math.exp(-half / x), x * math.exp(half / x)) if x else (0.0, half)


def plain_interval(x: float, variance: float | None, z: float) -> Pair:
    return (None, None) if variance is None else (x - z * math.sqrt(variance), x + z * math.sqrt(variance))


def share_interval(hits: Vector, draws: Vector, c: float) -> Pair:
    """Return the ends of the interval of the mean share of hits, over draws."""
    x, t, n = mean(hits / draws), (1 - c) / 2, draws + 0.2
    q = (hits + 0.1) / n
    size = mean(q) * (1 - mean(q)) * len(hits) ** 2 / math.fsum((q - q * q) * n / ((n - 1) * draws))
    k, rest = x * size, size - x * size
    low = beta_quantile(t, max(k, 1e-9), rest + 1) if k > 0 else 0.0
    return low, beta_quantile(1 - t, k + 1, max(rest, 1e-9)) if rest > 0 else 1.0


def discoveries(r: Radius) -> list[bool]:
    """Return which samples Benjamini and Hochberg discover at 0.05."""
    u, v = r.model - r.both, r.reference - r.both
    p = [binomial_tail(int(x), int(x + y)) for x, y in zip(u, v, strict=True)]
    order = sorted(range(len(p)), key=p.__getitem__, reverse=True)
    smallest = accumulate((p[i] * len(p) / (len(p) - k) for k, i in enumerate(order)), min)
    discovered = {i for i, least in zip(order, smallest, strict=True) if least <= 0.05}
    return [i in discovered for i in range(len(p))]


def fieller(lost: float, lead: float, moments: Iterable[float], z: float) -> Pair:
    """Return the ends of lost / lead from var(lost), cov and var(lead)."""
    a, b, k = (x - z * z * m for x, m in zip((lead**2, lost * lead, lost**2), reversed([*moments]), strict=True))
    if not (lead > 0 and a > 0):
        return None, None
    root = math.sqrt(max(b * b - a * k, 0.0))
    return (b - root) / a, (b + root) / a


class Audit:
    """The measures of one audit, from its counts of forgotten and of held-out samples."""

    def __init__(self, settings: dict[str, Json], forget: Counts, heldout: Counts | None) -> None:
        self.c, self.crafted_on = settings["confidence"], settings.get("crafted_on")
        self.untargeted = self.crafted_on is not None and settings.get("target", "untargeted") == "untargeted"
        self.enumerated = bool(settings.get("enumerated"))
        self.z = normal_quantile((1 + self.c) / 2)
        self.forget, self.taus, self.samples = forget, forget.taus, len(forget.ids)
        self.certain = [tau == 0 or self.enumerated for tau in forget.taus]
        self.measures: dict[str, Json] = {"taus": forget.taus, "samples": self.samples}
        self.measures["draws"] = [min(r.draws) for r in forget.radii]
        larger = {
            tau: [m > a for m, a in zip(r.model, r.reference, strict=True)] if sure else discoveries(r)
            for tau, r, sure in zip(self.taus, forget.radii, self.certain, strict=True)
        }
        self._collect(self._forgotten(*of) for of in zip(forget.radii, self.certain, larger.items(), strict=True))
        first = (next((tau for tau in sorted(larger) if larger[tau][i]), None) for i in range(self.samples))
        self.measures["first_radius"] = dict(zip(forget.ids, first, strict=True))
        self._with_heldout(heldout)

    def _collect(self, rows: Iterable[dict[str, Json]]) -> None:
        """Turn one dictionary for each radius into lists over radii."""
        for row in rows:
            for name, values in row.items():
                home = self.measures["heldout"] if name == "forgotten" else self.measures
                for entry, value in zip(ENTRIES[name].split(), values, strict=True) if name in ENTRIES else ():
                    home.setdefault(name, {}).setdefault(entry, []).append(value)
                if name not in ENTRIES:
                    home.setdefault(name, []).append(values)

    def _forgotten(self, r: Radius, sure: bool, found: tuple[float, list[bool]]) -> dict[str, Json]:
        n, z, pairs = self.samples, self.z, list(zip(r.model, r.reference, strict=True))
        pm, pa, defined = math.fsum(r.pm), math.fsum(r.pa), [m > a for m, a in pairs if a > 0]
        pooled, difference = ratio(pm, pa), mean(r.pm - r.pa)
        ends = (pooled, pooled) if sure or not pa else log_interval(pooled, r.variance(pooled or 0, 1) / pa**2, z)
        around = (difference,) * 2 if sure else plain_interval(difference, r.variance(1, 1 / n), z)
        x, base = sum(m > a for m, a in pairs) / n, 1 + z * z / n
        half, middle = z / base * math.sqrt(x * (1 - x) / n + z * z / (4 * n * n)), (x + z * z / (2 * n)) / base
        ratios = mean(m / a for m, a in pairs if a) if defined else None
        smoothed, nothing = mean((m + 0.5) / (a + 0.5) for m, a in pairs), [m == 0 for m, a in pairs if a == 0]
        made: dict[str, Json] = {
            "residual_knowledge": (pooled, *ends, ratios, smoothed, len(nothing) - sum(nothing), sum(nothing)),
            "difference": (difference, *(clipped(end, -1) for end in around)),
            "prevalence": (x, clipped(middle - half), clipped(middle + half)),
            "prevalence_defined": mean(defined) if defined else None,
            "prevalence_significant": mean(found[1]) if found[0] > 0 else None,
        }
        for name, right in (("disagreement", r.same), ("unlearn_accuracy", r.model)):
            value = mean((r.draws - right) / r.draws)
            made[name] = (value, *((value, value) if sure else share_interval(r.draws - right, r.draws, self.c)))
        return made

    def _with_heldout(self, heldout: Counts | None) -> None:
        """Add class knowledge and memory, on the classes that both sets have."""
        sizes = Counter(heldout.labels if heldout else ())
        classes = {label for label in set(self.forget.labels) if sizes[label] >= 10}
        if heldout is None or not classes:
            self.measures["heldout"] = {"samples": 0}
            return
        self.kept, self.outside = self.forget.of_classes(classes), heldout.of_classes(classes)
        of_class, labels = Counter(self.kept.labels), self.outside.labels
        self.weights = Vector(of_class[k] / len(self.kept.ids) / sizes[k] for k in labels)
        self.scale = self.weights * self.weights * Vector(sizes[k] / (sizes[k] - 1) for k in labels)
        left_out = [f"class {k} of the pack" for k in sorted(set(self.forget.labels) - classes)]
        self.measures["heldout"] = {"samples": len(labels), "left_out": left_out}
        if left_out:
            self.measures["heldout"]["forgotten"] = {"samples": len(self.kept.ids)}
        self._collect(self._memory(k, bool(left_out)) for k in range(len(self.taus)))

    def _centers(self, x: Vector, labels: list[int]) -> Vector:
        """Return for each label the mean of x over the held-out samples of this class."""
        by_class: dict[int, list[float]] = {}
        for label, value in zip(self.outside.labels, x, strict=True):
            by_class.setdefault(label, []).append(value)
        center = {label: mean(part) for label, part in by_class.items()}
        return Vector(center[label] for label in labels)

    def _memory(self, t: int, left_out: bool) -> dict[str, Json]:
        f, h, w, z, n = self.kept.radii[t], self.outside.radii[t], self.weights, self.z, len(self.kept.ids)
        pm_f, pa_f, pm_h, pa_h = mean(f.pm), mean(f.pa), math.fsum(h.pm * w), math.fsum(h.pa * w)
        row: dict[str, Json] = {"heldout": (pm_h, pa_h)} | ({"forgotten": (pm_f, pa_f)} if left_out else {})

        def spread(x: Vector) -> float:  # U(x)
            apart = x - self._centers(x, self.outside.labels)
            return math.fsum(apart * apart * self.scale)

        def of_mean(x: Vector, centers: Vector, more: float) -> float | None:
            return deviation(x - centers) ** 2 / n + more if n > 1 else None

        def add(name: str, value: float | None, ends: Callable[..., Pair], draws: Json, samples: Json) -> None:
            over = ends(value, samples, z) if len(self.outside.ids) >= 30 else (None, None)
            row[name] = (value, *((value, value) if self.certain[t] else ends(value, draws, z)), *over)

        r, g = ratio(pm_f, pa_f), ratio(pm_h, pa_h)
        e_f, e_h, v_h = f.pm - f.pa * (r or 0.0), h.pm - h.pa * (g or 0.0), h.variance(g or 0.0, w)
        add("class_knowledge", g, log_interval, g is None or v_h / pa_h**2, g is None or spread(e_h) / pa_h**2)
        memory, over_draws, over_samples = None, None, None
        if r is not None and g:
            memory, of_h = r / g, (r / g / pm_h) ** 2
            over_draws = f.variance(r, 1 / n) / (pa_f * g) ** 2 + v_h * of_h
            centers = self._centers(e_h, self.kept.labels) * (memory / pm_h)
            over_samples = of_mean(e_f / (pa_f * g), centers, spread(e_h) * of_h) if memory else None
        add("memory", memory, log_interval, over_draws, over_samples)
        f_f, f_h, over_draws = f.pm - f.pa, h.pm - h.pa, f.variance(1, 1 / n) + h.variance(1, w)
        over_samples = of_mean(f_f, self._centers(f_h, self.kept.labels), spread(f_h))
        add("memory_difference", pm_f - pa_f - pm_h + pa_h, plain_interval, over_draws, over_samples)
        if f.po and h.po:
            near = [Vector(map(abs, s.pm - s.pa)) - Vector(map(abs, s.pm - (s.po or 0))) for s in (f, h)]
            forgotten, outside = mean(near[0]), math.fsum(near[1] * w)
            row["nearer"] = (forgotten - outside, forgotten, outside)
        return row

    def add_completeness(self, controls: list["Audit"]) -> None:
        """Add completeness, whose floor is what controls differ by from the reference."""
        curves = [c.measures["difference"][end] for c in controls for end in ("low", "high")]
        if curves and all(r.po for r in self.forget.radii):
            floors = [max(map(abs, ends)) for ends in zip(*curves, strict=True)]
            self._collect(self._completeness(t, floor) for t, floor in enumerate(floors))

    def _completeness(self, t: int, floor: float) -> dict[str, Json]:
        r, n, z, sure = self.forget.radii[t], self.samples, self.z, self.certain[t]
        xs, ys = ((r.po or Vector()) - p for p in (r.pm, r.pa))
        lost, lead = mean(xs), mean(ys)
        value = lost / lead if lead > 0 else None
        size = r.draws + 0.2
        cells, scale = [(p + 1 / 40) / size for p in r.patterns], size / ((size - 1) * r.draws * n * n)

        def expected(values: Iterable[int]) -> Vector:  # of a value that each pattern has
            return Vector(map(math.fsum, zip(*(q * x for q, x in zip(cells, values, strict=True)), strict=True)))

        x, y = ([(k >> 2 & 1) - bool(k & bit) for k in range(8)] for bit in (2, 1))
        moments = [
            math.fsum((expected(map(operator.mul, u, v)) - expected(u) * expected(v)) * scale)
            for u, v in ((x, x), (x, y), (y, y))
        ]
        apart = (xs - lost, ys - lead)
        pairs = ((0, 0), (0, 1), (1, 1))
        over = [math.fsum(apart[i] * apart[j]) / (n * (n - 1)) if n > 1 else math.inf for i, j in pairs]
        over_draws = (value, value) if sure else fieller(lost, lead, moments, z)
        gap = lead if sure else lead - z * math.sqrt(moments[2])
        numbers = (value, *fieller(lost, lead, over, z), *over_draws) if gap > floor else (None,) * 5
        return {"completeness": (*numbers, gap, floor)}

    def rates(self, part: str) -> tuple[int, Vector, Vector] | None:
        """Return samples, and the rates of row and reference (section 7)."""
        heldout = self.measures["heldout"]
        if part == "heldout" and not heldout["samples"]:
            return None
        source = heldout if part == "heldout" else heldout.get("forgotten") if part == "kept" else None
        if source:
            return source["samples"], *(Vector(source[key]).clipped() for key in ("rate", "reference_rate"))
        p = Vector(1 - x for x in self.measures["unlearn_accuracy"]["value"])
        return self.samples, p.clipped(), (p - Vector(self.measures["difference"]["value"])).clipped()


# --- what retrained models show, and findings (section 7) ---


class Rates(NamedTuple):
    """Recognition rates on one set of samples, for each seed and radius."""

    samples: int
    row: list[Vector]
    reference: list[Vector]


class Part:
    """One quantity under one perturbation, and what retrained models show of it, column by column."""

    def __init__(self, run: "Run", name: str, quantity: str) -> None:
        self.run, self.name, self.quantity, self.form, self.samples = run, name, quantity, run.form, 0
        controls = [run.audits(label, name) for label in run.labels("control")]
        self.seeds, self.taus, self.crafted_on = len(controls[0]), controls[0][0].taus, controls[0][0].crafted_on
        self.attacked = run.audits(run.labels("reference")[0], name) if self.crafted_on == "unlearned" else []
        self.untargeted = self.form == "sample" and controls[0][0].untargeted
        rates = [self._rates(audits) for audits in controls]
        sizes = {len(audits) for audits in [*controls, self.attacked or controls[0]]}
        samples = {tuple(of.samples for of in row) for row in rates}
        self.exists = sizes == {self.seeds} and max(self.taus) > 0 and len(samples) == 1 and samples != {()}
        if not self.exists:
            return
        self.samples = rates[0][0].samples
        scores = [[self._scores(p) for p in of.reference] for of in rates[0]]
        self.base = means(scores[0])
        reference = [u - v for u, v in zip(*scores, strict=True)] if quantity == "M" else scores[0]
        values = [self._values(row) for row in rates]
        floors = [self._half_sample([row[i] for row in rates]) for i in range(len(rates[0]))]
        self.n, self.mean, self.spread, self.least = [], [], [], []
        for c in range(len(self.base)):
            at_zero = quantity == "r" and c > 0 and self.taus[c - 1] == 0
            alike = self.crafted_on != "reference" or at_zero
            shown = [(row[s][c], reference[s][c]) for row in values for s in range(self.seeds)]
            numbers = [v + alike * u for v, u in shown] + [u[c] for u in reference if alike]
            self.n.append(len(numbers))
            self.mean.append(math.fsum(v for v, _ in shown) / len(numbers))
            self.spread.append(deviation(numbers))
            self.least.append(math.hypot(*(floor[c] for floor in floors)))
        self.shares, self.sides = [0.0] * len(self.base), [(True, quantity != "M")] * len(self.base)

    def _rates(self, audits: list[Audit]) -> list[Rates]:
        """Return the rates on each set of the quantity; nothing where one is missing."""
        made = []
        for part in {"r": ("forgotten",), "G": ("heldout",), "M": ("kept", "heldout")}[self.quantity]:
            rates, against = ([a.rates(part) for a in of] for of in (audits, self.attacked or audits))
            sizes = {r[0] for r in [*rates, *against] if r}
            if None in rates or len(sizes) != 1 or len(rates) != len(against):
                return []
            reference: list[Json] = [r[1 if self.attacked else 2] for r in against if r]
            made.append(Rates(sizes.pop(), [r[1] for r in rates if r], reference))
        return made

    def _level_first(self, p: Vector) -> Vector:
        level = mean(x for x, tau in zip(p, self.taus, strict=True) if tau > 0)
        return Vector((level, *p) if self.quantity == "r" else (level,))

    def _score(self, p: float) -> float:
        if self.form == "class":
            return p
        return math.log(p + 1 / (2 * self.samples)) if self.quantity == "M" else math.asin(math.sqrt(p))

    def _scores(self, p: Vector) -> Vector:
        return Vector(map(self._score, self._level_first(p)))

    def _half_sample(self, rates: list[Rates]) -> list[float]:
        """Return how far half a sample moves the score at the mean rate of the controls, in each column."""
        half, center = 1 / (2 * rates[0].samples), self._level_first(means(p for of in rates for p in of.row))
        ends = ([self._score(clipped(p + x)) for x in (-half, 0, half)] for p in center)
        return [max(above - here, here - below) for below, here, above in ends]

    def _values(self, rates: list[Rates]) -> list[Vector]:
        """Return the values of a row against the reference, for each seed."""
        parts = [[self._scores(p) - self._scores(q) for p, q in zip(of.row, of.reference, strict=True)] for of in rates]
        return parts[0] if len(parts) == 1 else [x - y for x, y in zip(*parts, strict=True)]

    def row_values(self, label: str) -> list[Vector]:
        """Return the values of a row; nothing where it cannot be compared."""
        audits = self.run.audits(label, self.name)
        rates = self._rates(audits) if len(audits) == self.seeds else []
        return self._values(rates) if rates and rates[0].samples == self.samples else []

    def natural(self, x: float, c: int) -> float:
        if self.form == "class":
            return x
        if self.quantity == "M":
            return math.exp(min(x, 700.0))
        base, half = self.base[c], 1 / (2 * self.samples)
        over, under = (math.sin(clipped(a, 0, math.pi / 2)) ** 2 + half for a in (base + x, base))
        return over / under

    def columns(self, label: str) -> list[dict[str, Json]]:
        """Return what the rule says of a row in each column; nothing where it cannot be compared."""
        values, made, seeds = self.row_values(label), [], self.seeds
        most = math.inf if self.quantity == "M" else 1.0 if self.form == "class" else math.pi / 2
        for c, x in enumerate(means(values) if values else ()):
            n, share, center = self.n[c], self.shares[c], self.mean[c]
            column: dict[str, Json] = {"tau": self.taus[c - 1] if c else None, "share": share, "retrained": n}
            column |= {"value": self.natural(x, c), "p": 1.0, "reaches": False, "evidence": None}
            column |= dict.fromkeys(("statistic", "floor", "interval", "smallest", "side"))
            if n >= FEWEST:
                shift, error = x - center, max(self.spread[c] * math.sqrt(1 / seeds + 1 / n), self.least[c])
                column["statistic"] = statistic = shift / error if shift else 0.0
                wide = t_quantile(0.975, n - 1) * max(self.spread[c] / math.sqrt(seeds), self.least[c])
                column["interval"] = [self.natural(x - wide, c), self.natural(x + wide, c)]
                if share:
                    half = t_quantile(1 - ERROR * share / 2, n - 1) * error
                    detectable, (upwards, downwards) = half + t_quantile(POWER, n - 1) * error, self.sides[c]
                    column["floor"] = [self.natural(center - half, c), self.natural(center + half, c)]
                    if upwards and self.base[c] + center + detectable <= most:
                        column["smallest"] = self.natural(center + detectable, c)
                    tail = t_cdf(-max([statistic] * upwards + [-statistic] * downwards), n - 1)
                    column |= {"p": min(1.0, 2 * tail / share), "reaches": upwards and shift >= detectable}
                    below = shift < -half and self.quantity != "M"
                    column["side"] = side = "above" if shift > half else "below" if below else None
                    column["evidence"] = side if (upwards if side == "above" else downwards) else None
            made.append(column)
        return made

    def finding(self, label: str) -> dict[str, Json] | None:
        columns = [without(column, "p", "reaches", "evidence") for column in self.columns(label)]
        middle = self.mean[0] if self.crafted_on == "reference" else 0.0
        about = {"quantity": self.quantity, "perturbation": self.name, "form": self.form, "crafted_on": self.crafted_on}
        seeds = [self.natural(v[0], 0) for v in self.row_values(label)]
        return {**about, "columns": columns, "seeds": seeds, "neutral": self.natural(middle, 0)} if columns else None


class Run:
    """The record with the measures derived from its counts: everything that is concluded follows from these."""

    def __init__(self, record: dict[str, Json], derived: dict[str, dict[str, dict[str, Audit]]]) -> None:
        self.record, self.derived, self.methods = record, derived, record["methods"]
        self.scenario, self.form = record["scenario"], record["scenario"]["form"]
        self.sizes, self.settings = self.scenario["sizes"], self.scenario["settings"]
        audited = dict.fromkeys(name for row in derived.values() for seed in row.values() for name in seed)
        first = [name for name in self.settings["audit"].get("perturbations", []) if name in audited]
        self.perturbations = [*first, *sorted(set(audited) - set(first))]
        self.original = next(iter(self.labels("original")), None)
        self.reference = next(iter(self.labels("reference")), None)
        self.retrained = [label for label, row in self.methods.items() if row["role"] in ("reference", "control")]
        self.parts: dict[tuple[str, str], Part] = {}
        for name in self.perturbations if self.reference else ():
            if any(self.audits(label, name) for label in self.labels("control")[:1]):
                parts = ((quantity, Part(self, name, quantity)) for quantity in ("r", "G", "M"))
                self.parts |= {(name, quantity): part for quantity, part in parts if part.exists}
        compared = self.difficulty()
        self.fair = compared is None or compared["fair"]
        self.judging = [part for (_, quantity), part in self.parts.items() if quantity != "G"]
        self._share({name for name, _ in self.parts}, every_side=True)
        self.blind = self._blind()
        self._share({name for name, _ in self.parts} - set(self.blind))
        self.telling = self._telling()
        self.detected = any(of["reaches"] for p in self.judging if self.original for of in p.columns(self.original))

    def labels(self, *roles: str) -> list[str]:
        return [label for role in roles for label, row in self.methods.items() if row["role"] == role]

    def audits(self, label: str, name: str) -> list[Audit]:
        return [seed[name] for seed in self.derived[label].values() if name in seed]

    def metrics(self, *labels: str) -> list[Json]:
        return [seed.get("metrics") or {} for label in labels for seed in self.methods[label]["per_seed"].values()]

    def _share(self, seeing: set[str], *, every_side: bool = False) -> None:
        """Give every column its share of the error, and say which sides of it are evidence."""
        remembered = {of for of, q in self.parts if q == "M" and self.fair and not self.parts[of, q].untargeted}
        for (name, quantity), part in self.parts.items():
            radii, p, sees = sum(tau > 0 for tau in part.taus), max(len(seeing), 1), name in seeing
            judged, in_class = name in remembered, self.form == "class"
            level = LEVEL + (0 if 0 in part.taus else RADIUS_0)
            memory = 0.0 if not judged else RADII if in_class else level + RADII
            single = level + RADII - (memory if in_class else 0)
            level, radius = (single, single) if radii == 1 else (level, RADII / radii)
            zero = RADIUS_0 if seeing else 1.0
            columns = [level / p * sees, *(radius / p * sees if tau > 0 else zero for tau in part.taus)]
            memory *= sees / max(len(remembered & seeing), 1)
            part.shares = {"r": columns, "G": columns[:1], "M": [memory]}[quantity]
            if quantity == "r":
                above = every_side or not (judged or part.untargeted)
                every = above or (in_class and radii == 1)
                part.sides = [(above or in_class, True), *((every or tau == 0, True) for tau in part.taus)]

    def _blind(self) -> list[str]:
        seeing, at_zero = set[str](), False
        for part in self.judging if self.original else ():
            for column in part.columns(self.original or ""):
                zero, above = column["tau"] == 0, column["evidence"] == "above"
                at_zero, seeing = at_zero or (above and zero), seeing | ({part.name} if above and not zero else set())
        return [n for n in dict.fromkeys(n for n, _ in self.parts) if n not in seeing] if seeing or at_zero else []

    def _telling(self) -> Json:
        """Return the level or radius 0 of r that would show the smallest excess; M where neither shows any."""
        places: list[tuple[bool, float, int, tuple[str, str, int]]] = []
        for part in self.judging:
            finding = part.finding(self.reference or "")
            for c, column in enumerate(finding["columns"] if finding else []):
                if not column["tau"] and column["smallest"] is not None:
                    place = (part.name, part.quantity, c)
                    places.append((part.quantity == "M", column["smallest"], len(places), place))
        first = ((part.name, "r", 0) for part in self.judging if part.quantity == "r")
        return min(places)[3] if places else next(first, None)

    def noise_floor(self) -> dict[str, Json]:
        floors = {}
        for name in self.perturbations:
            audits = [audit for label in self.labels("control") for audit in self.audits(label, name)]
            if not audits:
                continue
            curves = [audit.measures["residual_knowledge"][end] for audit in audits for end in ("low", "high")]
            ends: list[Pair] = []
            for at in zip(*curves, strict=True):
                both = [*at, *(1 / x if x else None for x in at)] if audits[0].crafted_on is None else at
                ends.append((None, None) if None in both else (min(both), max(both)))
            if self.form == "sample" and audits[0].crafted_on != "unlearned" and (name, "r") in self.parts:
                finding = self.parts[name, "r"].finding(self.reference or "")
                floored = [column["floor"] for column in finding["columns"][1:]] if finding else []
                ends = [floor or end for floor, end in zip(floored or ends, ends, strict=True)]
            low, high = ([end[k] for end in ends] for k in (0, 1))
            floors[name] = {"taus": audits[0].taus, "pairs": len(audits), "low": low, "high": high}
        return floors

    # --- verdicts (section 8) ---

    def judgment(self, label: str) -> dict[str, Json]:
        """Return what the rule says of one row, before gates."""
        columns = [
            (of, (part.name, part.quantity, c)) for part in self.judging for c, of in enumerate(part.columns(label))
        ]
        complete = any(quantity == "r" for _, (_, quantity, _) in columns)
        above, below = ([item for item in columns if item[0]["evidence"] == side] for side in ("above", "below"))
        verdict = "MIXED" if above and below else "FOUND" if above else "OVER_FORGOTTEN" if below else "INCONCLUSIVE"
        if not (above or below) and complete and self.detected:
            verdict = "NOT_DETECTED"
        place = min(above or below, key=lambda item: item[0]["p"])[1] if above or below else self.telling
        findings: dict[str, dict[str, Json]] = {}
        for (name, quantity), part in self.parts.items():
            if complete and (finding := part.finding(label)):
                findings.setdefault(name, {})[quantity] = finding
        places = dict(zip(("perturbation", "quantity", "column"), place or (), strict=False))
        return {
            "verdict": verdict,
            "p_value": min([1.0, *(of["p"] for of, _ in columns)]) if complete else None,
            "rests_on": places if complete and place else None,
            "findings": findings,
        }

    # --- chips, differences, gates (sections 7 and 8) ---

    def compared(self, label: str, values_of: Callable[[str], list[Json]], share: float, samples: int | None) -> Json:
        """Compare a measure of a row with the retrained models; None where they cannot be compared."""
        values = values_of(label)
        others = [x for other in self.labels("reference", "control") for x in values_of(other)]
        n, seeds = len(others), len(values)
        if None in [*values, *others] or n < FEWEST or not seeds or n % seeds:
            return None

        def angle(x: float) -> float:
            return math.asin(math.sqrt(clipped(x / 100))) if samples else x

        center, least = mean(others), 0.0
        if samples:
            below, here, above = (angle(center + x * 50 / samples) for x in (-1, 0, 1))
            least = max(above - here, here - below)
        base, error = mean(map(angle, others)), max(deviation(map(angle, others)), least) * math.sqrt(1 / seeds + 1 / n)
        shift, half = mean(map(angle, values)) - base, t_quantile(1 - ERROR * share / 2, n - 1) * error
        floor = [base - half, base + half]
        if samples:
            floor = [100 * math.sin(clipped(x, 0, math.pi / 2)) ** 2 for x in floor]
        statistic = clipped(shift / error, -1e9, 1e9) if error else math.copysign(1e9, shift) if shift else 0.0
        made = {"value": mean(values), "floor": floor, "retrained": n, "statistic": statistic}
        return made | {"differs": abs(shift) > half, "below": shift < -half, "points": center - mean(values)}

    def chips(self, label: str, of: dict[str, Json], verdict: str) -> dict[str, Json]:
        """Return chips and differences of a row with a verdict."""
        findings, row = of["findings"], self.methods[label]
        name, quantity, c = self.telling or ("", "", 0)
        telling = findings.get(name, {}).get(quantity)
        most = [column["retrained"] for by in findings.values() if "r" in by for column in by["r"]["columns"]]
        smallest = telling["columns"][c]["smallest"] if telling else None
        memory: dict[str, Json] = {"state": "cannot tell"}
        levels = [(p, by["M"]["columns"][0]) for p, by in findings.items() if "M" in by]
        above = [item for item in levels if item[1]["side"] == "above"]
        noticed = [item for item in levels if item[1]["smallest"] is not None]
        if verdict != "NOT_COMPARABLE" and (above or noticed):
            best = (
                max(above, key=lambda i: i[1]["statistic"]) if above else min(noticed, key=lambda i: i[1]["smallest"])
            )
            p, column = best
            memory = {"state": "found" if above else "not found", "perturbation": p}
            memory |= {"value": column["value"], "smallest": column["smallest"]}

        def metric(name: str) -> Callable[[str], list[Json]]:
            return lambda row: [metrics.get(name) for metrics in self.metrics(row)]

        sizes = {"mia_accuracy": self.sizes.get("forget"), "test_accuracy": self.sizes.get("test") or 10**9}
        specs = [s for s in row.get("probes", {}) if s.partition(":")[0] in ("depth", "recovery")]
        asked = {name: metric(name) for name in (*sizes, "forget_margin", "margin_gap", "heldout_auc")}
        asked |= {spec: lambda row, spec=spec: self.probed(row, spec, "value", None) for spec in specs}
        rows = {name: self.compared(label, of, 0.05 / 9 / ERROR, sizes.get(name)) for name, of in asked.items()}
        accuracy = self.compared(label, asked["test_accuracy"], 1.0, sizes["test_accuracy"])
        lost = accuracy and {"state": "lost" if accuracy["below"] else "kept", "points": accuracy["points"]}
        confidence = {"retrained": max(most, default=0), "smallest": smallest, "form": self.form}
        confidence["quantity"] = quantity or "r"
        return {
            "chips": {"confidence": confidence, "memory": memory, "utility": lost or {"state": "cannot tell"}},
            "differences": [{"measure": m, **without(one, "below", "points")} for m, one in rows.items() if one],
        }

    def auc(self, label: str) -> tuple[float, float] | None:
        """Return the mean AUC of margins over seeds and its largest error; None unless every seed has both."""
        values = [(m.get("heldout_auc"), m.get("heldout_auc_error")) for m in self.metrics(label) if m]
        if not values or any(auc is None or not error for auc, error in values):
            return None
        return mean(auc for auc, _ in values), max(error for _, error in values)

    def difficulty(self) -> dict[str, Json] | None:
        """Return how hard forgotten samples are for retrained models compared with held-out ones."""
        values = [auc for label in self.retrained if (auc := self.auc(label))]
        if not values:
            return None
        center, half = mean(value for value, _ in values), 1.96 * max(error for _, error in values)
        low, high = clipped(center - half), clipped(center + half)
        return {"auc": center, "low": low, "high": high, "fair": low <= 0.6 and high >= 0.4}

    def low_end(self, first: list[str], second: list[str], metric: str, size: str) -> float:
        """Return the low end of the difference of two mean accuracies; -inf without values."""
        x, y = ([metrics[metric] for metrics in self.metrics(*labels) if metrics] for labels in (first, second))
        if not x or not y:
            return -math.inf
        n, gap, df = self.sizes.get(size, 0), mean(x) - mean(y), len(x) + len(y) - 2
        spread = sum(mean(of) * (100 - mean(of)) for of in (x, y)) / n if n else 0
        low = gap - normal_quantile(0.95) * math.sqrt(spread)
        if df:
            squares = sum(deviation(of) ** 2 * (len(of) - 1) for of in (x, y))
            low = min(low, gap - t_quantile(0.95, df) * math.sqrt(squares / df * (1 / len(x) + 1 / len(y))))
        return low

    def gates(self) -> list[list[Json]]:
        """Return name and outcome of every gate, in their order."""
        if not self.original or not self.reference:
            return []
        one, two, controls = [self.original], [self.reference], self.labels("control")
        recipes = [self.methods[label].get("settings", {}) for label in (*one, *two)]
        unknown = any("trained_by" in recipe or "surrogates" in recipe for recipe in recipes)
        results = self.methods[self.reference]["per_seed"].values()
        seen = any(audit["settings"].get("seen") for result in results for audit in result["audits"].values())
        made: list[list[Json]] = [["retrained", False]] if self.settings.get("surrogates") else []
        made += [["recipe", None if unknown else recipes[0] == recipes[1]], ["seen", not seen]]
        weights = [s.get("weights") for label in self.retrained for s in self.methods[label]["per_seed"].values()]
        if all(weights):
            made.append(["seeds", len(set(weights)) == len(weights)])
        made.append(["retain fit", self.low_end(one, two, "retain_accuracy", "retain") <= 1])
        forget, retain = (self.sizes.get(name, 0) for name in ("forget", "retain"))
        if forget <= 0.2 * (forget + retain):
            made.append(["utility", self.low_end(one, two + controls, "test_accuracy", "test") <= 3])
        made.append(["original", self.judgment(self.original)["verdict"] not in ("OVER_FORGOTTEN", "MIXED")])
        for c in controls:
            ends = (self.low_end(*pair, "test_accuracy", "test") for pair in ((two, [c]), ([c], two)))
            made.append(["controls", max(ends) <= 2])
        original, aucs = self.auc(self.original), [self.auc(label) for label in self.retrained]
        for auc, error in filter(None, aucs) if original and None not in aucs else ():
            p = min(1.0, len(aucs) * NORMAL.cdf((0.5 - auc) / error))
            made.append(["leak", not (p < LEAK and original and auc - 0.5 > (original[0] - 0.5) / 2)])
        return made

    # --- summaries, probes (sections 7 and 9) ---

    def summary(self, label: str) -> dict[str, Json]:
        """Return the means of a row over its seeds, and its average gap."""
        metrics_of_row, made = self.metrics(label), dict[str, Json]()
        for name in (*ACCURACIES, "mia_entropy_accuracy"):
            values = [metrics.get(name) for metrics in metrics_of_row]
            if values and None not in values:
                made[name] = {"mean": mean(values), "std": statistics.pstdev(values), "n": len(values)}
        reference = self.metrics(*self.labels("reference")[:1])
        if self.reference and all(name in of for of in [made, *reference] for name in ACCURACIES):
            gaps = (abs(made[name]["mean"] - mean(m[name] for m in reference)) for name in ACCURACIES)
            made["average_gap"] = mean(gaps)
            if len(metrics_of_row) == len(reference):
                pairs = zip(metrics_of_row, reference, strict=True)
                made["average_gap_per_seed"] = mean(mean(abs(a[n] - b[n]) for n in ACCURACIES) for a, b in pairs)
        relearn = [metrics.get("relearn_epochs") for metrics in metrics_of_row]
        if relearn and None not in relearn:
            median = statistics.median(math.inf if r["value"] is None else float(r["value"]) for r in relearn)
            censored = sum(r["censored"] for r in relearn)
            made["relearn_epochs"] = {"median": None if math.isinf(median) else median, "censored": censored}
            made["relearn_epochs"]["n"] = len(metrics_of_row)
        return made

    def probed(self, label: str, spec: str, entry: str, *missing: Json) -> list[Json]:
        """Return what a probe measured in each seed, `missing` in the place of nothing."""
        seeds = (s.get("probes", {}).get(spec) for s in self.methods[label]["per_seed"].values())
        return [one.get(entry) if one else missing[0] for one in seeds if one or missing]

    def probe(self, label: str, spec: str) -> dict[str, Json]:
        """Return what follows for a probe from its values by seed; nothing for probes that are taken on trust."""
        name, forget = spec.partition(":")[0], self.sizes.get("forget", 0)
        if name not in ("recovery", "depth", "features", "worst_case"):
            return {}
        values, low, high = (self.probed(label, spec, entry) for entry in ("value", "low", "high"))
        if not values or None in values:
            return {"value": None}
        made: dict[str, Json] = {"value": mean(values)}
        made |= {"low": min(low), "high": max(high)} if None not in low + high else {}
        rows = self.labels("control") if name == "worst_case" else self.labels("reference", "control")
        others = [x for row in rows if row != label for x in self.probed(row, spec, "value") if x is not None]
        made |= {"retrained": len(others), "floor": [min(others), max(others)] if others else None}
        made |= {"p": None, "found": None}
        if len(others) >= FEWEST:
            least = 0.5 / forget if name in ("recovery", "worst_case") and forget else 0.0
            distance = mean(values) - mean(others)
            error = max(deviation(others), least) * math.sqrt(1 / len(values) + 1 / len(others))
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
    weights = Vector(decoys * (len(rows) - decoys) / len(rows) for _, rows, decoys in classes)
    centered = {
        model: {row: score[row] - mean(score[k] for k in rows) for _, rows, _ in classes for row in rows}
        for model, score in {"": scores["unlearned"], "original_": scores.get("original")}.items()
        if score is not None
    }
    observed = {model: sum(a[row] for row in a if scores["decoy"][row]) for model, a in centered.items()}
    as_large = dict.fromkeys(centered, 1)
    for _ in range(audit["permutations"]):
        spend(len(scores["labels"]) // 4)
        drawn: list[int] = []
        for code, rows, decoys in classes:
            drawn += [row for _, row in sorted((code + generator.random(), row) for row in rows)[:decoys]]
        for model, a in centered.items():
            as_large[model] += sum(a[row] for row in drawn) >= observed[model] - 1e-9
    for model in centered:
        out[f"{model}p"] = as_large[model] / (1 + audit["permutations"])
        out[f"{model}difference"] = observed[model] / sum(weights)
    spread = Vector(sum(centered[""][row] ** 2 for row in rows) / max(len(rows) - 1, 1) for _, rows, _ in classes)
    quantiles = map(normal_quantile, (0.95, POWER))
    out["detectable"] = sum(quantiles) * math.sqrt(sum(weights * spread)) / sum(weights)
    visible = "original_" in centered and out["original_p"] <= 0.05 and out["original_difference"] >= out["detectable"]
    return out | {"conclusion": "FOUND" if out["p"] <= 0.05 else "NOT_DETECTED" if visible else "INCONCLUSIVE"}


# --- the page (section 11) ---

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")


class Page(HTMLParser):
    """Marked elements of a page with their texts, and how many other numbers it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.marks: list[tuple[str, str, list[str]]] = []
        self.other = 0
        self._open: list[tuple[str, list[str] | None]] = []  # tag, text of a mark
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Json] = dict(attrs)
        text: list[str] | None = [] if given.get("data-of") else None
        if text is not None:
            self.marks.append((given["data-of"], given.get("data-times") or "1", text))
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


def shows(text: str, values: list[Json], times: float) -> bool:
    """Tell whether a text of the page shows these values of the record."""
    if isinstance(values[0], str):
        return LABELS[values[0]] in text
    numbers = NUMBER.findall(text)
    apart = (abs(float(n) - x * times) * 10 ** len(n.partition(".")[2]) for n, x in zip(numbers, values, strict=False))
    return len(numbers) == len(values) and all(x <= 0.5001 for x in apart)


# --- the verifier ---


class Verifier:
    """Checks one pack; `differences`, `checked` and `not_checked` say what came out."""

    def __init__(self, members: Members) -> None:
        self.differences: list[str] = []
        self.checked: list[str] = []
        self.members, self.not_checked, self.page_checked, Steps.done = members, list(ON_TRUST), False, 0
        self.manifest = parsed("manifest.json", members["manifest.json"])
        self.record = parsed("results.json", members["results.json"], ordered=False)
        for name, value, schema in (
            ("manifest.json", self.manifest, PACK_SCHEMA),
            ("results.json", self.record, RECORD_SCHEMA),
        ):
            if value.get("schema") != schema:
                raise NoPackError(f"{name}: expected the schema {schema}, the one that this verifier knows")
        self.counts: dict[str, Counts] = {}
        for step in (self.hashes, self.limits, self.page, self.decoys, self.measures, self.conclusions):
            try:
                step()
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                self.differences.append(f"{step.__name__}: not as the format says ({type(error).__name__}: {error})")
                self.not_checked.insert(0, "what follows from what is not as the format says")
                break

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
            if not abs(derived - claimed) <= 1e-9 * max(1.0, abs(derived), abs(claimed)):
                self.differences.append(f"{where}: expected {derived!r}, got {claimed!r}")
        elif type(claimed) is not type(derived) or claimed != derived:
            shown = "nothing" if claimed is MISSING else repr(claimed)[:80]
            self.differences.append(f"{where}: expected {repr(derived)[:80]}, got {shown}")

    def hashes(self) -> None:
        contents = ((name, self.members[name]) for name in self.members.names if name != "manifest.json")
        wanted = {name: {"sha256": sha256(content), "bytes": len(content)} for name, content in contents}
        self.compare("manifest/files", sorted(self.manifest["files"]), sorted(wanted))
        self.compare("manifest/files", self.manifest["files"], wanted)
        lines = "".join(f"{name} {of['sha256']}\n" for name, of in sorted(wanted.items()))
        self.compare("manifest/root", self.manifest["root"], sha256(lines.encode()))
        self.compare("manifest/seal", self.manifest["seal"], sha256(written(without(self.manifest, "seal"))))
        hashed = sha256(written(without(self.record, "record_sha256")))
        self.compare("results/record_sha256", self.record["record_sha256"], hashed)
        self.checked.append(f"{len(wanted)} files have the hashes that the manifest lists; root, seal and record agree")

    def limits(self) -> None:
        if unnamed := sorted((set(self.record) - RECORD_KEYS) | (set(self.manifest) - MANIFEST_KEYS)):
            self.not_checked.append(f"what the format does not name: {repr(unnamed)[:200]}")
        rows = self.record["methods"]
        if len(rows) > MOST_ROWS or sum(len(row["per_seed"]) for row in rows.values()) > MOST_SEEDS:
            raise NoPackError(f"expected at most {MOST_ROWS} rows and {MOST_SEEDS} models")

    def read(self, name: str | None) -> Counts | None:
        """Return the counts in a file; each file belongs to one audit."""
        if name is None:
            return None
        if name in self.counts:
            self.differences.append(f"{name}: two audits name it")
        try:
            self.counts[name] = read_counts(self.members[name])
        except (NoPackError, ValueError, TypeError) as error:
            raise ValueError(f"{name}: {error}") from None
        return self.counts[name]

    def measures(self) -> None:
        """Derive all measures of all audits, and compare."""
        self.derived: dict[str, dict[str, dict[str, Audit]]] = {}
        audits: list[tuple[str, str, str, dict[str, Json], Audit]] = []
        shown: dict[tuple[str, str], list[Counts | None]] = {}
        rows = self.record["methods"]
        for label, seed, result in ((k, *item) for k, row in rows.items() for item in row["per_seed"].items()):
            of_seed = self.derived.setdefault(label, {}).setdefault(seed, {})
            for name, claimed in result["audits"].items():
                where = f"results/methods/{label}/per_seed/{seed}/audits/{name}"
                pair = [self.read(claimed["counts"]), self.read(claimed.get("heldout", {}).get("counts"))]
                of_seed[name] = audit = Audit(claimed["settings"], pair[0], pair[1])  # type: ignore[arg-type]
                audits.append((where, rows[label]["role"], name, claimed, audit))
                first = shown.setdefault((seed, name), pair)
                if not all(same_reference(a, b, audit.crafted_on) for a, b in zip(first, pair, strict=True)):
                    self.differences.append(f"{where}: other samples or references than those of the other rows")
                if label == "retrain" and any(r.model != r.reference for r in audit.forget.radii):
                    self.differences.append(f"{where}: the reference differs from itself")
                self._draws(where, claimed["settings"], audit)
        names = [name for name in self.members.names if name.startswith("counts/")]
        self.compare("counts", sorted(self.counts), names)
        for where, _, name, claimed, audit in audits:
            audit.add_completeness([a for _, role, n, _, a in audits if role == "control" and n == name])
            self.compare(where, claimed, audit.measures)
        ids = sorted({i for name, counts in self.counts.items() if "heldout" not in name for i in counts.ids})
        request = {"size": len(ids), "ids_hmac_root": sha256("".join(f"{i}\n" for i in ids).encode())}
        self.compare("manifest/request", self.manifest["request"], request)
        self.compare(
            "manifest/models",
            sorted(self.manifest["models"]),
            sorted(f"{k}/{seed}" for k in rows for seed in rows[k]["per_seed"]),
        )
        self.checked.append(f"measures and intervals of {len(audits)} audits follow from counts (not the bootstrap)")

    def _draws(self, where: str, settings: dict[str, Json], audit: Audit) -> None:
        most = max((d for d, tau in zip(audit.measures["draws"], audit.taus, strict=True) if tau > 0), default=None)
        asked = self.record["scenario"]["settings"]["audit"]
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
        """Derive floors, gates, verdicts, chips and summaries, and compare."""
        run, judged, record = Run(self.record, self.derived), {}, self.record
        for label, row in record["methods"].items():
            self.compare(f"results/methods/{label}/summary", row["summary"], run.summary(label))
            for spec, claimed in row.get("probes", {}).items():
                self.compare(f"results/methods/{label}/probes/{spec}", claimed, run.probe(label, spec))
        if record.get("rule_version") != RULE_VERSION:
            text = f"expected {RULE_VERSION}, got {record.get('rule_version')}; verdicts not checked"
            self.differences.append(f"results/rule_version: {text}")
            return
        gates = run.gates()
        accepted = run.settings.get("accept_reference") and not run.settings.get("surrogates")
        refused = any(passed is False for _, passed in gates) and not accepted
        for label in record["methods"]:
            of = run.judgment(label)
            of["verdict"] = None if label in run.retrained else "NOT_COMPARABLE" if refused else of["verdict"]
            judged[label] = of | (run.chips(label, of, of["verdict"]) if of["verdict"] else {})
        for of in record["judgments"].values():  # the record leaves out what is the default
            of["rests_on"] = of.get("rests_on") and {"quantity": "r", "column": 0} | of["rests_on"]
            if of.get("chips"):
                of["chips"]["confidence"] = {"quantity": "r"} | of["chips"]["confidence"]
        self.compare("results/judgments", record["judgments"], judged)
        self.compare("results/gates", [[g["name"], g["passed"]] for g in record["gates"]], gates)
        self.compare("results/difficulty", record.get("difficulty"), run.difficulty())
        self.compare("results/blind", record["blind"], run.blind)
        self.compare("results/noise_floor", record["noise_floor"], run.noise_floor())
        self.checked.append(f"noise floors, gates, p-values, verdicts and chips of {len(judged)} rows")

    def page(self) -> None:
        page = Page(self.members["report.html"].decode())
        fewest = 2 * sum(of["verdict"] is not None for of in self.record["judgments"].values())
        self.page_checked = bool(page.marks)
        if page.marks and len(page.marks) < fewest:
            self.differences.append(f"report.html: expected at least {fewest} marked elements, got {len(page.marks)}")
        for paths, times, pieces in page.marks:
            text, values = "".join(pieces), [self._at(path) for path in paths.split()]
            if not shows(text, values, float(times)):
                self.differences.append(f"report.html: {paths} is {values}, and the page shows {text.strip()[:60]!r}")
        if page.marks:
            self.checked.append(f"{len(page.marks)} marked places of the page show what the record says")
            self.not_checked.append(f"sentences and pictures of the page, and {page.other} other numbers in its text")

    def _at(self, path: str) -> Json:
        part = self.record
        for key in map(unquote, path.split("/")):
            part = part[int(key)] if isinstance(part, list) else part[key]
        return part


def same_reference(a: Counts | None, b: Counts | None, crafted_on: str | None) -> bool:
    """Tell whether two tables have the same samples and the same answers of the reference."""
    if a is None or b is None or a.ids != b.ids or crafted_on == "unlearned":
        return a is b or bool(a and b and a.ids == b.ids)
    cells = (
        zip(one.draws, two.draws, one.reference, two.reference, strict=True)
        for one, two in zip(a.radii, b.radii, strict=True)
    )
    return not any(d == e and x != y for d, e, x, y in chain.from_iterable(cells))


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
        parts = {key: getattr(result, key) for key in ("differences", "checked", "not_checked")}
        parts["not_checked"] = [*unseen, *result.not_checked]
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
