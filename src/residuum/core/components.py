"""Everything that has a name: methods, perturbations, probes, networks, data sets and scenarios.

A built-in component is a line `"name": "module:Class"`, imported on first use: listing names loads no torch.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from residuum.core.errors import InputError
from residuum.core.registry import Registry

METHODS: Registry[Any] = Registry(
    "method",
    "residuum.methods",
    {
        "gd": "residuum.unlearning.gd:GD",
        "ngd": "residuum.unlearning.ngd:NGD",
        "ga": "residuum.unlearning.ga:GA",
        "neggrad": "residuum.unlearning.neggrad:NegGrad",
        "eu_k": "residuum.unlearning.eu_k:EUk",
        "cf_k": "residuum.unlearning.cf_k:CFk",
        "scrub": "residuum.unlearning.scrub:SCRUB",
        "ssd": "residuum.unlearning.ssd:SSD",
        "fisher": "residuum.unlearning.fisher:Fisher",
        "ntk": "residuum.unlearning.ntk:NTK",
        "cr": "residuum.unlearning.cr:CR",
        "rurk": "residuum.unlearning.rurk:RURK",
        "soft_reset": "residuum.unlearning.soft_reset:SoftReset",
        "teacher": "residuum.unlearning.teacher:Teacher",
        "salun": "residuum.unlearning.salun:SalUn",
        "amun": "residuum.unlearning.amun:AMUN",
        "msg": "residuum.unlearning.msg:MSG",
        "ct": "residuum.unlearning.ct:CT",
        "falw": "residuum.unlearning.falw:FaLW",
        "regun": "residuum.unlearning.regun:ReGUn",
    },
    accept="residuum.unlearning:Method",
)

PERTURBATIONS: Registry[Any] = Registry(
    "perturbation",
    "residuum.perturbations",
    {
        "gaussian": "residuum.perturbations:Gaussian",
        "fgsm": "residuum.perturbations:FGSM",
        "pgd": "residuum.perturbations:PGD",
        "uniform_l2": "residuum.perturbations:UniformL2",
        "uniform_linf": "residuum.perturbations:UniformLinf",
        "substitution": "residuum.perturbations:Substitution",
    },
    accept="residuum.perturbations.user:as_perturbation",
)

MODELS: Registry[Any] = Registry(
    "model",
    "residuum.models",
    {
        "cnn": "residuum.models.networks:CNN",
        "mlp": "residuum.models.networks:MLP",
        "logistic": "residuum.models.networks:LogisticRegression",
        "resnet18": "residuum.models.networks:ResNet18",
        "resnet50": "residuum.models.networks:ResNet50",
        "vgg11": "residuum.models.networks:VGG11",
        "airbench": "residuum.models.networks:Airbench",
    },
    accept="residuum.models:Classifier",
)

DATASETS: Registry[Any] = Registry(
    "data set",
    "residuum.datasets",
    {
        "digits": "residuum.data.loaders:load_digits",
        "iris": "residuum.data.loaders:load_iris",
        "fashion-mnist": "residuum.data.loaders:load_fashion_mnist",
        "cifar10": "residuum.data.cifar:load_cifar10",
        "imagenet100": "residuum.data.loaders:load_imagenet100",
    },
    accept="residuum.data.loaders:as_loader",
)

PROBES: Registry[Any] = Registry(
    "measure",
    None,
    {
        "recovery": "residuum.auditing.probes:RecoveryRadius",
        "depth": "residuum.auditing.probes:Depth",
        "worst_case": "residuum.auditing.probes:WorstCase",
        "durability": "residuum.auditing.probes:Durability",
        "features": "residuum.auditing.probes:Features",
        "rmia": "residuum.auditing.probes:RMIA",
        "klom": "residuum.auditing.probes:KLoM",
        "ulira": "residuum.auditing.probes:ULiRA",
    },
)

# what every audit computes: no measure of a user can have one of these names
BUILT_IN_MEASURES = (
    *("pooled", "mean_of_ratios", "difference", "disagreement", "unlearn_accuracy", "prevalence"),
    *("class_knowledge", "memory", "memory_difference", "completeness", "nearer"),
)

OWN_MEASURES: Registry[Any] = Registry(
    "measure",
    "residuum.measures",
    {},
    accept="residuum.auditing.measures:as_measure",
    reserved=(*BUILT_IN_MEASURES, *PROBES.built_in),
)


def _as_scenario_file(candidate: object) -> Traversable:
    if isinstance(candidate, Traversable) and candidate.name.endswith(".toml"):
        return candidate
    raise InputError(f"expected the path of a scenario's .toml file, got {candidate!r}")


_SCENARIOS = files("residuum") / "studies" / "scenarios"
_NAMES = sorted(file.name.removesuffix(".toml") for file in _SCENARIOS.iterdir() if file.name.endswith(".toml"))
SCENARIOS: Registry[Traversable] = Registry(
    "scenario", "residuum.scenarios", {name: _SCENARIOS / f"{name}.toml" for name in _NAMES}, accept=_as_scenario_file
)
