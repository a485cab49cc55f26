"""The rule of a verdict once more, in plain loops over a record's JSON: shares no code with the package.

Only rates are read: a row's share right is 1 - unlearn_accuracy, the reference's is that minus the difference.
"""

import math
from statistics import fmean, stdev

from scipy.stats import t as student

ALPHA, LEVEL, RADIUS_0, RADII = 0.035, 0.2, 0.7, 0.1


def right(audit, part, whose):
    """Rates of the model or the reference on forgotten, kept or held-out samples, and how many samples there are."""
    heldout = audit.get("heldout") or {}
    if part == "heldout":
        return heldout.get({"model": "rate", "reference": "reference_rate"}[whose]) or [], heldout.get("samples", 0)
    if part == "kept" and heldout.get("forgotten"):
        aside = heldout["forgotten"]
        return aside[{"model": "rate", "reference": "reference_rate"}[whose]], aside["samples"]
    rates = [1 - wrong for wrong in audit["unlearn_accuracy"]["value"]]
    if whose == "reference":
        rates = [rate - more for rate, more in zip(rates, audit["difference"]["value"], strict=True)]
    return rates, audit["samples"]


def score(rate, samples, scale):
    rate = min(max(rate, 0.0), 1.0)
    if scale == "log":
        return math.log(rate + 1 / (2 * samples))
    return rate if scale == "share" else math.asin(math.sqrt(rate))


def half_sample(rate, samples, scale, forgotten):
    step = 1 / (2 * samples)
    up, down = (score(min(max(rate + s, 0), 1), forgotten, scale) for s in (step, -step))
    return max(up - score(rate, forgotten, scale), score(rate, forgotten, scale) - down)


def rate_in(audit, part, whose, column):
    """The rate at a radius, or the mean over the radii above 0 (column None)."""
    rates, samples = right(audit, part, whose)
    if column is None:
        return fmean([rate for rate, tau in zip(rates, audit["taus"], strict=True) if tau > 0]), samples
    return rates[audit["taus"].index(column)], samples


class Plain:
    """The columns of a record: what retrained models show in each, and what a row does."""

    def __init__(self, record):
        self.record, self.form = record, record["scenario"]["form"]
        rows = record["methods"].values()
        self.original, self.reference = (
            next((row for row in rows if row["role"] == role), None) for role in ("original", "reference")
        )
        self.controls = [row for row in rows if row["role"] == "control"]
        names = record["scenario"]["settings"]["audit"]["perturbations"]
        self.shares, self.one_sided = {}, {}
        self.share_out(names)
        if self.original is None:
            return
        seen = {place for place in self.shares if self.beyond(self.original, place) == "above"}
        seeing = [name for name in names if any(p == name and tau != 0 for p, _, tau in seen)]
        if seen:
            self.share_out(seeing, names)

    def audits(self, row, name):
        return [seed["audits"][name] for seed in row["per_seed"].values()]

    def untargeted(self, name):
        settings = self.audits(self.controls[0], name)[0]["settings"]
        attack = settings.get("crafted_on") is not None and settings.get("target") in (None, "untargeted")
        return attack and self.form == "sample"

    def share_out(self, seeing, names=None):
        """Divide the error among the columns (perturbation, quantity, radius); some count on one side only."""
        self.shares, self.one_sided = {}, {}
        remembering = len([name for name in seeing if not self.untargeted(name)])
        for name in names or seeing:
            first = self.audits(self.controls[0], name)[0]
            above = [tau for tau in first["taus"] if tau > 0]
            heldout = all(right(audit, "heldout", "model")[1] for c in self.controls for audit in self.audits(c, name))
            if name in seeing:
                level, radii = LEVEL + (0 if 0 in first["taus"] else RADIUS_0), RADII
                memory = 0
                if self.untargeted(name):
                    self.one_sided |= {(name, "r", tau): "below" for tau in (None, *above)}
                elif heldout and self.form == "class":
                    memory, radii = RADII, 0 if len(above) == 1 else RADII
                elif heldout:
                    memory = level + RADII
                if len(above) == 1:
                    level = level + radii
                self.shares[name, "r", None] = level / len(seeing)
                for tau in above:
                    self.shares[name, "r", tau] = (level if len(above) == 1 else radii / len(above)) / len(seeing)
                if memory:
                    self.shares[name, "M", None] = memory / remembering
                    self.one_sided[name, "M", None] = "above"
                    if self.form == "sample":
                        self.one_sided[name, "r", None] = "below"
                    if self.form == "sample" or len(above) > 1:
                        self.one_sided |= {(name, "r", tau): "below" for tau in above}
            if 0 in first["taus"]:
                self.shares[name, "r", 0] = RADIUS_0 if seeing else 1.0

    def model_scores(self, row, place, whose="model"):
        """The scores of a row, or of the references on its inputs, one a seed."""
        name, quantity, column = place
        scale = "share" if self.form == "class" else "log" if quantity == "M" else "angle"
        parts = ("kept", "heldout") if quantity == "M" else ("forgotten",)
        numbers = []
        for audit in self.audits(row, name):
            forgotten = rate_in(audit, parts[0], whose, column)[1]
            values = [score(rate_in(audit, part, whose, column)[0], forgotten, scale) for part in parts]
            numbers.append(values[0] - values[1] if quantity == "M" else values[0])
        return numbers

    def least(self, place):
        name, quantity, column = place
        scale = "share" if self.form == "class" else "log" if quantity == "M" else "angle"
        squares, forgotten = 0.0, rate_in(self.audits(self.controls[0], name)[0], "kept", "model", column)[1]
        for part in ("kept", "heldout") if quantity == "M" else ("forgotten",):
            pairs = [rate_in(a, part, "model", column) for c in self.controls for a in self.audits(c, name)]
            squares += half_sample(fmean([rate for rate, _ in pairs]), pairs[0][1], scale, forgotten) ** 2
        return math.sqrt(squares)

    def judged(self, row, place):
        """Number of retrained models, shift of the row, s, T, half a noise floor and the detectable shift."""
        name, _, column = place
        crafted = self.audits(self.controls[0], name)[0]["settings"].get("crafted_on")
        mine, seeds = self.model_scores(row, place), len(row["per_seed"])
        if crafted == "reference" and column != 0:
            mine = [a - b for a, b in zip(mine, self.model_scores(row, place, "reference"), strict=True)]
            others = [
                a - b
                for c in self.controls
                for a, b in zip(self.model_scores(c, place), self.model_scores(c, place, "reference"), strict=True)
            ]
        else:
            whose = self.reference if crafted == "unlearned" else self.controls[0]
            references = self.model_scores(whose, place, "model" if crafted == "unlearned" else "reference")
            others = references + [value for c in self.controls for value in self.model_scores(c, place)]
        number = len(others)
        shift = fmean(mine) - fmean(others)
        s = stdev(others)
        error = max(s * math.sqrt(1 / seeds + 1 / number), self.least(place))
        q = student.ppf(1 - ALPHA * self.shares[place] / 2, number - 1)
        return number, shift, s, shift / error, q * error, (q + student.ppf(0.8, number - 1)) * error

    def beyond(self, row, place):
        """On which side of the noise floor a row lies; below it, M means nothing."""
        number, shift, _, _, half, _ = self.judged(row, place)
        if number < 3:
            return None
        if shift > half:
            return "above"
        return "below" if shift < -half and place[1] == "r" else None

    def side(self, row, place):
        """On which side of the noise floor a row lies, if that is evidence."""
        side = self.beyond(row, place)
        return side if side == self.one_sided.get(place, side) else None

    def verdict(self, label):
        row = self.record["methods"][label]
        sides = {self.side(row, place) for place in self.shares}
        if sides >= {"above", "below"}:
            return "MIXED"
        if "above" in sides:
            return "FOUND"
        if "below" in sides:
            return "OVER_FORGOTTEN"
        if max(self.judged(row, place)[0] for place in self.shares) < 3 or self.original is None:
            return "INCONCLUSIVE"
        upwards = [place for place in self.shares if self.one_sided.get(place) != "below"]
        shifts = [self.judged(self.original, place) for place in upwards]
        return "NOT_DETECTED" if any(shift >= det for _, shift, _, _, _, det in shifts) else "INCONCLUSIVE"

    def p_value(self, label):
        values = []
        for place, share in self.shares.items():
            number, _, _, statistic, _, _ = self.judged(self.record["methods"][label], place)
            side = self.one_sided.get(place)
            distance = abs(statistic) if side is None else statistic if side == "above" else -statistic
            values.append(2 * student.sf(distance, number - 1) / share)
        return min(1.0, *values)
