"""The stand-alone verifier: its numbers are those of the format's description, and it needs nothing but Python."""

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from residuum import verify_pack

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "src/residuum/verify_pack.py"
FORMAT = (ROOT / "docs/reference/evidence-format.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs/reference/evidence-example.zip"
PACKS = [
    EXAMPLE,
    *(
        pytest.param(path, marks=pytest.mark.long)
        for path in sorted((ROOT / "docs/reproduction").glob("*/evidence.zip"))
    ),
]


def test_it_imports_only_the_standard_library():
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def run_alone(pack, folder, *more):
    """Run a copy of the file in an empty folder, without any installed package."""
    shutil.copy(SCRIPT, folder / "verify_pack.py")
    command = [sys.executable, "-I", "-S", "verify_pack.py", str(pack), *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_it_runs_alone_and_says_what_it_did_not_check(tmp_path):
    done = run_alone(EXAMPLE, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "everything that was checked agrees" in done.stderr
    assert "not checked: the counts themselves" in done.stdout


@pytest.mark.parametrize("pack", PACKS, ids=lambda path: path.parent.name)
def test_it_agrees_with_every_committed_pack(pack):
    result = verify_pack.Verifier(verify_pack.Members(pack))
    assert result.differences == []
    assert result.page_checked


def test_distribution_functions_are_those_of_the_worked_numbers():
    table = re.search(r"\| function \| argument \| value \|\n.*?\n((?:\|.*\n)+)", FORMAT)
    values = [float(row.rsplit("|", 2)[1]) for row in table[1].splitlines()]
    computed = [
        verify_pack.normal_quantile(0.975),
        verify_pack.t_quantile(1 - 0.035 * 0.7 / 2, 8),
        verify_pack.t_quantile(0.95, 2),
        verify_pack.t_cdf(-3.863225437067589, 8),
        verify_pack.beta_quantile(0.025, 5.5, 6.25),
        verify_pack.binomial_tail(7, 9),
    ]
    assert computed == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "x"), [(0.5, 0.5, 0.3), (1e-9, 3.0, 0.2), (300.0, 12_000.0, 0.025), (4.0, 0.5, 0.999)]
)
def test_the_beta_function_is_scipys(a, b, x):
    from scipy.special import betainc, betaincinv

    assert verify_pack.beta_cdf(x, a, b) == pytest.approx(betainc(a, b, x), rel=1e-10)
    for p in (0.025, 0.5, 0.975):
        assert verify_pack.beta_quantile(p, a, b) == pytest.approx(betaincinv(a, b, p), rel=1e-9, abs=1e-60)


def rewritten(folder, change):
    """Return a copy of the example whose record was changed, with all hashes made anew, as a forger would."""
    packed = verify_pack.Members(EXAMPLE)
    members = {name: packed[name] for name in packed.names}
    record, manifest = json.loads(members["results.json"]), json.loads(members["manifest.json"])
    change(record, members)
    record["record_sha256"] = verify_pack.sha256(verify_pack.written(verify_pack.without(record, "record_sha256")))
    members["results.json"] = verify_pack.written(record, ordered=False)
    files = {n: {"sha256": verify_pack.sha256(c), "bytes": len(c)} for n, c in members.items() if n != "manifest.json"}
    manifest["files"] = files
    lines = "".join(f"{name} {of['sha256']}\n" for name, of in sorted(files.items()))
    manifest["root"] = verify_pack.sha256(lines.encode())
    manifest["seal"] = verify_pack.sha256(verify_pack.written(verify_pack.without(manifest, "seal")))
    members["manifest.json"] = verify_pack.written(manifest)
    with zipfile.ZipFile(folder / "forged.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / "forged.zip"


def set_verdict(record, members):
    record["judgments"]["gd"]["verdict"] = "NOT_DETECTED"


def set_r(record, members):
    record["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"]["residual_knowledge"]["pooled"][1] = 1.0


def set_count(record, members):
    name = record["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"]["counts"]
    table = json.loads(members[name])
    table["joint"][0][1] = [20, 0, 0, 0, 0, 0, 0, 0]
    table["same_prediction"][0][1] = 0
    members[name] = verify_pack.written(table)


def set_accuracy(record, members):
    record["methods"]["gd"]["summary"]["test_accuracy"]["mean"] = 99.0


def set_page(record, members):
    members["report.html"] = members["report.html"].replace(b"1.23 [1.06, 1.30]", b"1.03 [0.96, 1.10]")


def set_gate(record, members):
    record["gates"][2]["passed"] = False


def set_decoys(record, members):
    """Add a decoy audit whose scores are far apart, with a p-value that they do not have."""
    scores = {"labels": [0] * 40, "decoy": [k < 20 for k in range(40)], "unlearned": [0.9] * 20 + [0.1] * 20}
    audit = {"scores": scores, "exchangeability": {"passed": True}, "permutations": 99, "seed": 1}
    derived = verify_pack.decoy_audit(audit)
    assert (derived["p"], derived["conclusion"]) == (0.01, "FOUND")
    record["decoys"] = {"gd": {**audit, **derived, "p": 0.3, "conclusion": "INCONCLUSIVE"}}


FORGERIES = {
    set_decoys: "results/decoys/gd/p",
    set_verdict: "judgments/gd/verdict",
    set_r: "residual_knowledge/pooled/1",
    set_count: "audits/gaussian",
    set_accuracy: "summary/test_accuracy/mean",
    set_page: "report.html",
    set_gate: "results/gates",
}


@pytest.mark.parametrize("change", FORGERIES, ids=lambda change: change.__name__)
def test_a_forger_who_makes_all_hashes_anew_is_found(change, tmp_path):
    result = verify_pack.Verifier(verify_pack.Members(rewritten(tmp_path, change)))
    assert any(FORGERIES[change] in difference for difference in result.differences), result.differences


def test_what_is_no_pack_is_refused_in_one_line(tmp_path):
    (tmp_path / "no.zip").write_bytes(b"PK nothing")
    done = run_alone(tmp_path / "no.zip", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no evidence pack" in done.stderr
    assert len(done.stderr.splitlines()) == 1
