"""The calculators on the command line say what the functions say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from residuum.cli.bound import app
from residuum.theory import Logistic, ratio_violation, request_phases, robust_epsilon, shifted_epsilon


def call(text):
    result = CliRunner().invoke(app, text.split())
    assert result.exit_code == 0, result.output
    return result.output


def values(text):
    return {name: bound["value"] for name, bound in json.loads(call(text + " --json")).items()}


CHAIN = "--n 1000 --learn-steps 300 --l2 0.05 --sigma 0.05 --delta 1e-5"
SETTINGS = {"l2": 0.05, "classes": 10}


def test_every_command_prints_value_constants_and_assumptions():
    for text in (
        "indistinguishability --eps 1 --delta 1e-5",
        "disagreement --eps 1 --delta 1e-5 --dimension 3072 --tau 0.03",
        "residual --ratio 1.2 --accuracy 0.5",
        "renyi --alpha 2 --divergence 0.1 --alpha 8 --divergence 0.4 --delta 1e-5",
        "sphere --dimension 10 --tau 0.3",
        f"langevin {CHAIN} --removed 1 --steps 20",
        "descent-to-delete --n 1000 --steps 25 --l2 0.05 --eps 1 --delta 1e-5",
        "removal --residual 0.1 --kept 900 --l2 0.01 --noise 0.1 --delta 1e-5",
    ):
        output = call(text)
        assert " = " in output
        assert "assumes: " in output


def test_indistinguishability_printed_and_tight():
    assert values("indistinguishability --eps 1 --delta 1e-5")["violation"] == ratio_violation(1, 1e-5).value
    assert "at least 0.999982" in call("indistinguishability --eps 1 --delta 1e-5")
    printed = json.loads(call("indistinguishability --eps 0.1 --delta 0.05 --printed --json"))["violation"]
    assert printed["vacuous"] is True
    assert "vacuous" in call("indistinguishability --eps 0.1 --delta 0.06")


def test_residual_knowledge_both_forms():
    assert values("residual --ratio 1 --accuracy 0.5") == {"low": 0.0, "high": 1.0}
    assert values("residual --ratio 1 --accuracy 0.5 --independent") == {"low": 0.25, "high": 0.75}


def test_langevin_sequence_equals_the_function():
    found = values(f"langevin {CHAIN} --classes 10 --removed 1 --removed 5 --steps 20 --steps 90 --published")
    problem = Logistic(**SETTINGS)
    phases = request_phases(1000, [1, 5], 300, [20, 90], problem.lipschitz)
    assert found["epsilon"] == pytest.approx(shifted_epsilon(phases, problem.chain(0.05), 1e-5).value)
    assert found["published"] > found["epsilon"]


def test_rurk_equals_the_function():
    found = values(
        f"rurk {CHAIN} --classes 10 --removed 1 --steps 20 --normaliser fixed"
        " --lambda-f 0.001 --lambda-a 0.001 --tau 0.5"
    )
    problem = Logistic(**SETTINGS)
    phases = request_phases(1000, [1], 300, [20], problem.lipschitz, normaliser="fixed")
    expected = robust_epsilon(problem, problem.chain(0.05), phases, 1e-5, lambda_f=1e-3, lambda_a=1e-3, tau=0.5)
    assert found["epsilon"] == pytest.approx(expected.value)


def test_files_of_models(tmp_path):
    rng = np.random.default_rng(7)
    a, b = rng.normal(2, 1, (1000, 2)), rng.normal(0, 1, (1000, 2))
    np.savez(tmp_path / "models.npz", unlearned=a, retrained=b)
    np.savez(tmp_path / "readouts.npz", unlearned=a[:, 0], retrained=b[:, 0])
    assert values(f"empirical {tmp_path}/models.npz --delta 1e-5")["lower_bound"] > 1
    assert values(f"readout {tmp_path}/readouts.npz --draws 50")["divergence"] > 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("indistinguishability --eps -1 --delta 0.1", "eps in [0, inf)"),
        ("renyi --alpha 1 --divergence 0.1 --delta 0.1", "alpha in (1, inf)"),
        ("renyi --alpha 2 --divergence 0.1 --delta 1", "delta in (0, 1)"),
        ("sphere --dimension 1 --tau 0.1", "dimension in [2, inf)"),
        ("removal --residual 0.1 --kept 0 --l2 0.01 --noise 0.1 --delta 1e-5", "kept in [1, inf)"),
        ("readout nowhere.npz", "does not exist"),
    ],
)
def test_impossible_input_is_a_value_error_with_the_allowed_range(text, message):
    result = CliRunner().invoke(app, text.split())
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)


def test_npz_without_the_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", unlearned=np.zeros(3))
    result = CliRunner().invoke(app, ["readout", str(tmp_path / "x.npz")])
    assert "retrained is not a file" in str(result.exception)
