#!/bin/bash
# CIFAR-10 at full size with the cpu profile: about four hours of one core. DATA: the folder of cifar-10-batches-py.
# `--precision` needs the extra `dist`.
ROWS="gd:epochs=1,ga,neggrad,cf_k:epochs=1,scrub,rurk,rurk:bn_mode=eval,soft_reset"
RUN="residuum run cifar10 --data-root DATA --precision bf16-mixed --workers 2 --methods $ROWS --perturbations gaussian"
$RUN --seeds 131 --out runs/cifar10
# A study of several seeds can be computed seed by seed, with the same versions:
# $RUN --seeds 42 --out runs/cifar10-42
# python -m benchmarks.reproduction.join runs/cifar10 runs/cifar10-42 --out runs/cifar10-seeds
