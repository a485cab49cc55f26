"""The sentences about verdicts, in one table: terminal, page, cards and tables say the same because they read it."""

SENTENCES = {
    # verdicts
    "not comparable": "No verdict: {failed}.",
    "conditional": "Conditional on an accepted reference: {failed}.",
    "inconclusive": "Nothing can be concluded: {doubts}.",
    "recognition": "It is right {often} the retrained model{inputs} ({where}).",
    "recognition of the samples": "It is right {often} the retrained model on the forgotten samples themselves.",
    "level of memory": "Memory M of the forgotten samples is {value}{unit} ({where}).",
    "evidence": "Retraining explains {low} to {high}{unit} (p = {p:.2g}).",
    "no evidence": (
        "Retraining explains {low} to {high}{unit}, so this is no evidence. This audit can miss less than {smallest}."
    ),
    "no evidence at all": "Retraining explains {low} to {high}{unit}, so this is no evidence.",
    "remembers": "It remembers these very samples: M = {M}. Retraining explains {low} to {high}.",
    "knows the class": (
        "Memory of these samples was not found: M = {M}, and retraining explains {low} to {high}. As far as this audit "
        "can tell, it knows their class better than retrained models do (G = {G}). That is a difference of training, "
        "not of these samples. This audit can miss an M below {smallest}."
    ),
    "lost": "Its test accuracy is {points:.1f} points below the retrained models'.",
    "surrogates": (
        "An indication only: it is right {often} a surrogate on perturbed forgotten samples ({perturbation}). "
        "Surrogates differ from each other by {low} to {high}."
    ),
    "surrogates, held out": "Compared with held-out samples of the same classes: {level} ({explained}).",
    # chips
    "memory found": "It recognizes these samples better than its knowledge of their class explains: M = {value}.",
    "memory not found": "M is what retraining explains. This audit can miss an M below {smallest}.",
    "memory cannot tell": "Nothing can be said about M: {reason}.",
    "utility kept": "Its test accuracy is what retraining explains.",
    "utility lost": "Its test accuracy is {points:.1f} points below the retrained models', more than these lie apart.",
    "utility cannot tell": "There are too few retrained models to compare its test accuracy with.",
    "confidence": "It was compared with {models}. {power}",
    "power": "The audit would have noticed {quantity} of {smallest} in four of five runs.",
    "no power": "The audit could not have noticed any excess.",
    "differs": (
        "Differs from retrained models in: {measures}. A shorter or different training would, too. "
        "This is no evidence of memory."
    ),
    # all rows
    "recommended": (
        "Recommended: {label}. It costs {cost} % of retraining, the least of the methods in which residual knowledge "
        "was not detected, memory was not found, test accuracy was kept, and no warning contradicts it."
    ),
    "none recommended": "No method of this run can be recommended.",
    "nothing to forget": (
        "There may be nothing to forget: the original and the retrained models do not differ on the forgotten samples."
    ),
    "left out": "Not judged: {number} that {verb} training data as well.",
    "blind": "Not judged: {names}. {subject} not tell even the original from a retrained model.",
}
NONE_RECOMMENDED = {
    "warned": "Nothing else speaks against it, but a method raised warnings: read them before you use it.",
    "lost": (
        "Where residual knowledge was not detected, test accuracy was lost: train the unlearned model for longer, keep "
        "more of the original, or let residuum tune choose the settings."
    ),
    "no memory": "Memory could not be measured: give held-out samples of the same classes, and at least two controls.",
    "not comparable": "The reference is not comparable: first retrain as the original was trained.",
    "inconclusive": "No verdict could be reached: add retrained models, by more controls or more seeds.",
    "both": (
        "Every method remembers too much or lost too much: let residuum tune choose settings between the two, try "
        "soft_reset, or use the retrained model."
    ),
    "found": (
        "Residual knowledge was found, or could not be excluded, in every one: try soft_reset with a smaller keep or "
        "more epochs, let residuum tune choose the settings, or use the retrained model."
    ),
}  # why no row can be recommended, and what to try next


def sentence(name: str, **values: object) -> str:
    """Return a sentence of the table with its values.

    >>> sentence("lost", points=4.44)
    "Its test accuracy is 4.4 points below the retrained models'."
    """
    return SENTENCES[name].format(**values)
