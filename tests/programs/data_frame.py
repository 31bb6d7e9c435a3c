"""Dask's data frames: each task of the graph becomes a task, for one computation or for all that follow."""

from __future__ import annotations

import importlib.util

import ray


def main() -> None:
    for needed in ("dask", "pandas"):
        if importlib.util.find_spec(needed) is None:
            print(f"skipped: {needed} is not installed")
            return
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd
    from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get

    ray.init(num_cpus=2)
    rng = np.random.default_rng(5)
    orders = pd.DataFrame({"customer": rng.integers(0, 40, 5_000), "price": rng.integers(1, 100, 5_000)})
    countries = pd.DataFrame({"customer": range(40), "country": [f"C{number % 7}" for number in range(40)]})
    large, small = dd.from_pandas(orders, npartitions=4), dd.from_pandas(countries, npartitions=1)

    total = large.price.sum().compute(scheduler=ray_dask_get)
    assert total == orders.price.sum(), f"the sum is {total} instead of {orders.price.sum()}"

    enable_dask_on_ray()
    spent = large.merge(small, on="customer").groupby("country").price.sum().compute().sort_index()
    ranked = large.set_index("price").compute()
    disable_dask_on_ray()

    expected = orders.merge(countries, on="customer").groupby("country").price.sum().sort_index()
    assert spent.to_dict() == expected.to_dict(), f"the sums are {spent.to_dict()}, not {expected.to_dict()}"
    assert ranked.index.tolist() == sorted(orders.price), "the rows are not in order"
    print(f"answer: {total} spent, most in {spent.idxmax()}: {spent.max()}")


if __name__ == "__main__":
    main()
