"""Nearly equal samples: what counts as near is what distances between other samples say, whatever their size."""

import pytest
import torch

from residuum.core.samples import Samples, Splits
from residuum.data.copies import near_copies


def splits(retain, forget, test):
    retain, forget, test = (
        Samples(x, torch.zeros(len(x), dtype=torch.int64), tuple(f"{name}{row}" for row in range(len(x))))
        for name, x in (("r", retain), ("f", forget), ("t", test))
    )
    none = retain.subset([])
    train = Samples(torch.cat([retain.x, forget.x]), torch.cat([retain.y, forget.y]), (*retain.ids, *forget.ids))
    return Splits(train, retain, forget, none, test, none, ("0", "1"))


def test_what_is_usual_does_not_depend_on_rounding():
    generator = torch.Generator().manual_seed(0)

    def moved(x, distance):
        steps = torch.randn(x.shape, generator=generator)
        return x + distance * steps / steps.flatten(1).norm(dim=1)[:, None, None, None]

    x = 0.9 + 0.1 * torch.rand(420, 3, 32, 32, generator=generator)  # about 2.2 apart
    retain = torch.cat([x[:400], moved(x[:100], 0.1)])  # most have no neighbor as near
    near = near_copies(splits(retain, moved(x[200:201], 0.04), torch.cat([moved(x[300:301], 0.04), x[400:]])))
    assert near == (("f0",), ("t0",))


@pytest.mark.parametrize("retained", [1, 40])
def test_where_all_retained_samples_are_equal_none_is_near(retained):
    generator = torch.Generator().manual_seed(0)
    others = torch.rand(10, 3, generator=generator)
    assert near_copies(splits(torch.ones(retained, 3), others[:5], others[5:])) == ((), ())
