"""Grid search by scikit-learn: joblib's backend makes a task of each fit, and nothing else changes."""

from __future__ import annotations

import importlib.util

import joblib
import ray
from ray.util.joblib import register_ray


def main() -> None:
    if importlib.util.find_spec("sklearn") is None:
        print("skipped: scikit-learn is not installed")
        return
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    ray.init(num_cpus=2)
    register_ray()
    features, labels = load_iris(return_X_y=True)
    grid = {"C": [0.01, 0.1, 1.0, 10.0], "gamma": [0.01, 0.1, 1.0]}
    with joblib.parallel_backend("ray", n_jobs=2):
        search = GridSearchCV(SVC(), grid, cv=3).fit(features, labels)

    plain = GridSearchCV(SVC(), grid, cv=3, n_jobs=1).fit(features, labels)
    scores, expected = search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"]
    assert scores.tolist() == expected.tolist(), f"the scores are {scores} instead of {expected}"
    assert search.best_params_ == plain.best_params_, f"the best are {search.best_params_}"
    print(f"answer: {search.best_params_} with score {search.best_score_:.4f} of {len(scores)}")


if __name__ == "__main__":
    main()
