"""Everything that has a name: methods, perturbations, probes, networks, data sets and scenarios.

A built-in component is a line `"name": "module:Class"`, imported when it is asked for: listing names loads no torch.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from residuum.errors import InputError
from residuum.plugins import Registry

METHODS: Registry[Any] = Registry(
    "method",
    "residuum.methods",
    {
        "gd": "residuum.methods.gd:GD",
        "ngd": "residuum.methods.ngd:NGD",
        "ga": "residuum.methods.ga:GA",
        "neggrad": "residuum.methods.neggrad:NegGrad",
        "eu_k": "residuum.methods.eu_k:EUk",
        "cf_k": "residuum.methods.cf_k:CFk",
        "scrub": "residuum.methods.scrub:SCRUB",
        "ssd": "residuum.methods.ssd:SSD",
        "fisher": "residuum.methods.fisher:Fisher",
        "ntk": "residuum.methods.ntk:NTK",
        "cr": "residuum.methods.cr:CR",
        "rurk": "residuum.methods.rurk:RURK",
        "soft_reset": "residuum.methods.soft_reset:SoftReset",
        "teacher": "residuum.methods.teacher:Teacher",
        "salun": "residuum.methods.salun:SalUn",
        "amun": "residuum.methods.amun:AMUN",
        "msg": "residuum.methods.msg:MSG",
        "ct": "residuum.methods.ct:CT",
        "falw": "residuum.methods.falw:FaLW",
        "regun": "residuum.methods.regun:ReGUn",
    },
    accept="residuum.methods:as_method",
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
    },
    accept="residuum.models.layers:as_network",
)

DATASETS: Registry[Any] = Registry(
    "data set",
    "residuum.datasets",
    {
        "digits": "residuum.data.loaders:load_digits",
        "iris": "residuum.data.loaders:load_iris",
        "fashion-mnist": "residuum.data.fashion:load_fashion_mnist",
        "cifar10": "residuum.data.cifar:load_cifar10",
        "imagenet100": "residuum.data.image_folder:load_imagenet100",
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
        "rmia": "residuum.auditing.probes:RMIA",
        "klom": "residuum.auditing.probes:KLoM",
        "ulira": "residuum.auditing.probes:ULiRA",
    },
)

# what an audit computes without being asked: no measure of the user's own can have one of these names
BUILT_IN_MEASURES = (
    *("pooled", "mean_of_ratios", "difference", "disagreement", "unlearn_accuracy", "prevalence"),
    *("class_knowledge", "memory", "memory_difference", "completeness", "nearer"),
)

OWN_MEASURES: Registry[Any] = Registry(
    "measure",
    "residuum.measures",
    {},
    accept="residuum.auditing.own_measures:as_measure",
    reserved=(*BUILT_IN_MEASURES, *PROBES.ours),
)


def _as_scenario_file(candidate: object) -> Traversable:
    if isinstance(candidate, Traversable) and candidate.name.endswith(".toml"):
        return candidate
    raise InputError(f"expected the path of a scenario's .toml file, got {candidate!r}")


_SCENARIOS = files("residuum") / "experiments" / "scenarios"
SCENARIOS: Registry[Traversable] = Registry(
    "scenario",
    "residuum.scenarios",
    {
        name.removesuffix(".toml"): _SCENARIOS / name
        for name in sorted((file.name for file in _SCENARIOS.iterdir()), key=lambda name: name.removesuffix(".toml"))
        if name.endswith(".toml")
    },
    accept=_as_scenario_file,
)
