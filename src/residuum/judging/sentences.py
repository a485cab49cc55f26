"""All sentences about verdicts: gates, doubts, verdicts, chips and advice, in one table that every output reads."""

# parts of sentences: gates, doubts and reasons
CLAUSES = {
    # gates: what is wrong with the reference
    "gate retrained": (
        "no retrained model was available; surrogates that never saw the forgotten samples took its place: they were "
        "trained only until they fit the retained samples, and not as the original was"
    ),
    "gate recipe unknown": "the recipe of {rows} is not known, so nobody compared how the two were trained",
    "gate recipe": "the original and the retrained model were trained by different recipes ({settings})",
    "gate seen": "the retrained model has seen {seen}: it must never have seen any",
    "gate seeds": (
        "{models} have equal weights: a training function that ignores its seed shows nothing of how far retrained "
        "models differ by chance"
    ),
    "gate accuracy": (
        "the retrained {of} {part} accuracy is {points:.1f} points below the original's (limit {limit:g})"
    ),
    "gate original": (
        "the untouched original, which was trained on the forgotten samples, is right on them less often than "
        "retraining explains: the two were not trained alike"
    ),
    "gate controls": (
        "the retrained model and {control} differ by {points:.1f} points of test accuracy (limit {limit:g}): the "
        "training of one failed"
    ),
    "gate leak": (
        "{model} knows the forgotten samples better than held-out ones of their classes (AUC of margins {auc:.2f}, "
        "p = {p:.2g}) and nearly as the original does ({original:.2f}): it was trained on them, or they are easier and "
        "the original remembers nothing of them"
    ),
    # doubts: why nothing can be concluded
    "doubt no control": ("no control (second retrained model) was audited at a radius above 0; give --set controls=2"),
    "doubt no spread": "with {models} there is no spread to judge by{advice}",
    "doubt no original": ("no original was audited, so nothing shows that this audit could have found anything"),
    "doubt few samples": (
        "it was trained on the forgotten samples, and this audit does not tell it from a retrained model: with "
        "{samples}, a single one is too much of a recognition rate{advice}"
    ),
    "doubt original": (
        "it was trained on the forgotten samples, and this audit does not tell it from a retrained model: there are "
        "too few samples or retrained models, or every model recognizes these samples{advice}"
    ),
    "doubt power": "{models} cannot tell even the original from a retrained model{advice}",
    "doubt recognized": (
        "on the unperturbed samples, it is right on {original:.0f} % and the retrained model on {retrained:.0f} %"
    ),
    "advice": "; {ways} would do",
    "no advice": "; not even {most} more controls would do",
    # reasons why nothing is known of memory
    "no held-out": "too few held-out samples of these classes were audited, or too few retrained models",
    "held-out unlike": (
        "held-out samples are {harder} for retrained models than the forgotten ones (AUC {auc:.2f} [{low:.2f}, "
        "{high:.2f}])"
    ),
    "few retrained": "there are fewer than three retrained models",
    "all blind": "no perturbation tells even the original from a retrained model",
    "untargeted": (
        "an attack that only makes models wrong shows no memory; audit with noise, or with an attack towards the true "
        "label"
    ),
    "no M": "no M would have been noticed",
    "no reference": "the reference is not comparable",
}
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
    "level alone": (
        "This may be a difference of training: models that were trained for fewer epochs recognize perturbed samples "
        "more often, too, and there was no fair comparison with held-out samples."
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
    "no method": "No unlearning method was run.",
    "one verdict": "{subject}: {verdict}.",
    "several verdicts": "Of {total} methods: {counts}.",
    # what a page does not prove
    "absence": (
        "That anything was deleted. 'Not detected' is absence of evidence at this precision, for these samples, "
        "perturbations and radii. Other perturbations may find more."
    ),
    "noise floor": (
        "What retraining can do in general. The noise floor comes from {models} of this run. If a retrained model "
        "poses as unlearned, at most about {false_alarms:.0f} % of runs raise a false alarm."
    ),
    "other samples": (
        "Anything about other samples, other models or other data. The intervals are over the random perturbations, "
        "with the forgotten samples and the trained models fixed; seeds show how models vary."
    ),
    "alike": "That the original and the retrained model were trained alike: {text}.",
    "legal": "A legal conclusion. The page measures behavior; people decide whether that satisfies a deletion request.",
    "no power at all": (
        "That this audit can detect residual knowledge at all: it did not tell even the original, which was trained on "
        "the forgotten samples, from the retrained model. Read the other verdicts with that in mind."
    ),
    # the statement of a deletion
    "stated no conclusion": "The audit allows no conclusion ({reasons}).",
    "stated not detected": (
        "The audit did not detect that the new weights know the samples better than models that never saw them; it "
        "would have detected {smallest} in {power:.0f} of 100 such audits, and it cannot prove that nothing is left."
    ),
    "stated found": (
        "The audit found a difference: {verdict}; at most {errors:.0f} of 100 models that never saw the samples would "
        "be called so by mistake."
    ),
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
    """Return a sentence or clause of the table with its values.

    >>> sentence("lost", points=4.44)
    "Its test accuracy is 4.4 points below the retrained models'."
    """
    return (CLAUSES | SENTENCES)[name].format(**values)
