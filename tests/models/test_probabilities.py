"""Classifiers that are no networks: probabilities in, logits out, audited without gradients, weights or pickles."""

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from examples import tree_ensembles
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from residuum import InputError, Recipe, Request, audit, wrap
from residuum.auditing import Counts
from residuum.core.seeds import child_seed
from residuum.models import load_state, save_weights, wrap_like
from residuum.models.probabilities import LEAST
from residuum.models.weights import state_hash
from residuum.perturbations import Substitution, block_generator
from residuum.record.verdicts import Verdict
from residuum.request.study import AuditOptions


def points(n, seed, classes=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return (rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[y]).astype(np.float32), y


def forest(x, y, seed=0):
    return RandomForestClassifier(10, random_state=seed).fit(x, y)


def refit(samples, seed):
    x, y = samples.batch(torch.arange(len(samples)))
    return forest(x.numpy(), y.numpy(), seed % 2**32)


@pytest.fixture(scope="module")
def request_():
    return Request(points(120, 1), forget=[str(k) for k in range(0, 120, 8)], held_out=points(90, 2), retrain=refit)


@pytest.fixture(scope="module")
def model(request_):
    return wrap(refit(request_.source.samples, 0), bounds=None)


@pytest.mark.parametrize("name", tree_ensembles.ENSEMBLES)
def test_exact_deletion_comes_out_clean_and_the_original_does_not(name, tmp_path):
    run = tree_ensembles.audited(name, tmp_path, draws=25)
    verdicts = {label: judgment.verdict for label, judgment in run.verdicts.items()}
    assert verdicts == {"original": Verdict.FOUND, "fitted-again": Verdict.NOT_DETECTED}
    page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
    assert {"gradient-boosting": "GradientBoostingClassifier", "random-forest": "RandomForestClassifier"}[name] in page


@pytest.mark.parametrize("kind", ["classifier", "bound method", "function", "pipeline"])
def test_the_softmax_of_the_answer_is_the_probability(kind):
    x, y = points(80, 1)
    fitted = forest(x, y) if kind != "pipeline" else make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    given = {"bound method": fitted.predict_proba, "function": lambda rows: fitted.predict_proba(rows).tolist()}
    model = wrap(given.get(kind, fitted), bounds=None)
    share = fitted.predict_proba(x.astype(np.float64))
    logits = model(torch.from_numpy(x).double())
    assert np.allclose(logits.softmax(1), np.maximum(share, LEAST), atol=1e-11)
    assert model(torch.from_numpy(x)).dtype == torch.float32
    assert torch.equal(logits.argmax(1), torch.from_numpy(share.argmax(1)))


def test_counts_of_an_audit_are_those_of_a_plain_loop(request_, model, tmp_path):
    again = refit(request_.splits.retain, 5)
    options = AuditOptions(taus=(0, 0.5))
    request_.audit(model, {"new": again}, options, controls=2, draws=30, out=tmp_path / "run", store=tmp_path / "store")
    counts = Counts.load(tmp_path / "run" / "counts" / "1" / "new" / "gaussian.npz")
    forget = request_.splits.forget
    for name, x, y in zip(forget.ids, forget.x, forget.y, strict=True):
        blocks = [block_generator(child_seed(1, "audit"), name, k).standard_normal((25, 4), "float32") for k in (0, 1)]
        moved = x + 0.5 * torch.from_numpy(np.concatenate(blocks)[:30])
        share = again.predict_proba(moved.double().numpy())
        best = share >= share.max(1, keepdims=True) - 1e-10  # of equal ones the first
        assert counts.method_right[counts.ids.index(name), 1] == (best.argmax(1) == int(y)).sum()


def test_a_service_behind_a_local_endpoint_is_audited_as_its_classifier_is(request_, model, tmp_path):
    again = refit(request_.splits.retain, 5)

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(again.predict_proba(np.array(rows)).tolist()).encode())

        def log_message(self, *details):
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def service(rows):
            with urlopen(f"http://127.0.0.1:{server.server_port}", json.dumps(rows.tolist()).encode()) as answer:
                return json.load(answer)

        asked = {"service": wrap(service, bounds=None), "itself": again}
        request_.audit(
            model,
            asked,
            AuditOptions(taus=(0, 0.5)),
            controls=2,
            draws=4,
            out=tmp_path / "run",
            store=tmp_path / "store",
        )
        server.shutdown()
    counts = [Counts.load(tmp_path / "run" / "counts" / "1" / label / "gaussian.npz") for label in asked]
    assert (counts[0].method_right == counts[1].method_right).all()


def test_images_become_rows_of_a_classifier_and_normalization_stands_before_it():
    x, y = np.random.default_rng(0).random((40, 1, 3, 3), np.float32), np.arange(40) % 2
    fitted = forest(2 * x.reshape(40, 9) - 1, y)
    share = wrap(fitted, mean=0.5, std=0.5)(torch.from_numpy(x).double()).exp().numpy()
    assert np.allclose(share, np.maximum(fitted.predict_proba(2 * x.reshape(40, 9).astype(np.float64) - 1), LEAST))


def test_texts_are_audited_by_substitution_of_token_ids(tmp_path):
    def mails(n, seed):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, n)
        return np.where(rng.random((n, 6)) < 0.6, 1 + 10 * y[:, None] + rng.integers(0, 10, (n, 6)), 21), y

    def counted(ids):
        assert ids.dtype == np.int64
        second = (ids > 10).mean(1)
        return np.stack([1 - second, second], 1)

    model = wrap(counted, tokens=True)
    request = Request(
        mails(60, 1),
        forget=[str(k) for k in range(0, 60, 3)],
        held_out=mails(60, 2),
        retrain=lambda samples, seed: counted,
    )
    options = AuditOptions(perturbations=[Substitution(vocabulary=22, keep=(0,))], taus=(0, 0.3))
    run = request.audit(
        model, {"new": counted}, options, controls=2, draws=20, out=tmp_path / "run", store=tmp_path / "store"
    )
    rates = run.rows["original"].per_seed["1"].audits["substitution"].recognition_rates()[1]
    assert rates[1] < rates[0]


def test_a_class_that_was_not_fitted_has_its_column(request_):
    x, y = points(90, 1)
    whole, without = forest(x, y), forest(x[y != 1], y[y != 1])
    like = wrap_like(without, wrap(whole, bounds=None))
    share = like(torch.from_numpy(x).double()).exp()
    assert share.shape == (90, 3)
    assert share[:, 1].max() < 2 * LEAST
    last = wrap_like(forest(x[y != 2], y[y != 2]), wrap(whole, bounds=None))
    assert last(torch.from_numpy(x)).shape == (90, 3)


def test_a_fitted_classifier_is_copied_once_and_told_apart_by_its_content(tmp_path):
    x, y = points(60, 1)
    hers = forest(x, y)
    model, same, before = wrap(hers), wrap(hers), hers.predict_proba(x.astype(np.float64))
    other = wrap(forest(x, y, seed=1))
    hers.fit(x, 1 - np.minimum(y, 1))
    asked = torch.from_numpy(x).double()
    assert np.allclose(model(asked).exp(), np.maximum(before, LEAST))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(asked), model(asked))
    assert copied.predict is model.predict
    assert state_hash(model.state_dict()) == state_hash(same.state_dict())
    assert state_hash(model.state_dict()) != state_hash(other.state_dict())
    save_weights(other, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"RandomForestClassifier: a classifier cannot be read from a file; fit it"):
        load_state(model, tmp_path / "other.safetensors")


def test_a_resumed_audit_fits_retrained_classifiers_again(request_, model, tmp_path):
    """Their files hold no classifier, and the original must not take their place."""
    again = refit(request_.splits.retain, 5)
    runs = []
    for out in ("one", "two"):
        fresh = Request(points(120, 1), forget=request_.forget_ids, held_out=points(90, 2), retrain=refit)
        folder = {"out": tmp_path / out, "store": tmp_path / "store"}
        runs.append(fresh.audit(model, {"new": again}, controls=2, draws=10, **folder))
    one, two = (
        {label: row.per_seed["1"].audits["gaussian"].residual_knowledge for label, row in run.rows.items()}
        for run in runs
    )
    assert one == two
    assert one["original"] != one["new"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: np.full(len(x), 0.5), r"got shape \(3,\); return np.stack\(\[1 - p, p\], 1\) for two classes"),
        (lambda x: np.full((len(x), 1), 0.5), r"return np.stack"),
        (lambda x: np.ones((2, 2)), r"expected probabilities \(3, classes\) from <lambda>, got shape \(2, 2\)"),
        (lambda x: 3 * np.eye(3)[:, :2], "apply a softmax to scores"),
        (lambda x: np.full((len(x), 2), np.nan), "sum 1"),
        (lambda x: np.tile([-0.5, 1.5], (len(x), 1)), "between 0 and 1"),
        (lambda x: "cat", "got str"),
        (lambda x: None, "got"),
    ],
)
def test_what_are_no_probabilities_is_one_line(answer, words):
    with pytest.raises(InputError, match=words) as error:
        wrap(answer)(torch.zeros(3, 2))
    assert "\n" not in str(error.value)


def test_what_needs_a_network_says_so(request_, model):
    for method in ("soft_reset", "gd"):
        with pytest.raises(InputError, match=r"^methods change the weights of a network, and RandomForestClassifier"):
            request_.unlearn(model, method)
    for attack in ("fgsm", "pgd"):
        with pytest.raises(InputError, match=rf"^{attack} follows the gradients of a network, .*; expected noise such"):
            request_.audit(model, {"new": model}, AuditOptions(perturbations=[attack]))
    with pytest.raises(InputError, match=r"^recovery reads weights, gradients or layers of a network"):
        request_.audit(model, {"new": model}, AuditOptions(measures=["recovery"]))
    with pytest.raises(InputError, match=r"^recipes and surrogates train a network, .*give a function as retrain="):
        request_.audit(model, {"new": model}, surrogates=True)
    by_recipe = Request(points(60, 1), forget=["0"], held_out=points(60, 2), recipe=Recipe())
    with pytest.raises(InputError, match=r"^recipes and surrogates train a network"):
        by_recipe.audit(model, {"new": model})
    with pytest.raises(InputError, match="differentiable"):
        audit({"new": model}, model, request_.splits.forget, "fgsm", taus=[0.1], draws=1, seed=1)


@pytest.mark.parametrize("option", [{"weights": "w.pt"}, {"logits": "logits"}, {"at": "layer"}, {"batch": ("a", "b")}])
def test_options_of_networks_are_refused(option):
    with pytest.raises(InputError, match=rf"^wrap: {next(iter(option))}= is for networks, and <lambda> gives"):
        wrap(lambda x: x, **option)


def test_what_cannot_be_wrapped_is_refused_with_what_to_do(request_):
    with pytest.raises(InputError, match=r"got LogisticRegression; fit it first: wrap\(LogisticRegression\(\).fit"):
        wrap(LogisticRegression)
    with pytest.raises(InputError, match=r"got RandomForestClassifier; wrap it first"):
        request_.check(forest(*points(20, 1)))

    class Locked:
        def __init__(self):
            import threading

            self.lock = threading.Lock()

        def predict_proba(self, x):
            return np.full((len(x), 2), 0.5)

    with pytest.raises(InputError, match=r"that can be copied and pickled, got Locked .*; give a function: wrap\("):
        wrap(Locked())
    assert wrap(lambda x: Locked().predict_proba(x))(torch.zeros(1, 2)).shape == (1, 2)
    assert isinstance(wrap(nn.Linear(2, 2)), nn.Linear)
