#!/bin/bash
# CIFAR-10 at full size with the cpu profile: about six hours of one core. DATA: the folder of cifar-10-batches-py.
# `--precision` needs the extra `dist`.
SMALL="soft_reset_128=soft_reset:keep=0.4:batch_size=128:lr=0.125:schedule=triangle:clean=0.34"
ROWS="gd:epochs=1,ngd:epochs=1,ga,neggrad,eu_k:epochs=1,cf_k:epochs=1,scrub,ssd,rurk,rurk:bn_mode=eval,soft_reset,$SMALL"
RUN="residuum run cifar10 --data-root DATA --precision bf16-mixed --workers 2 --perturbations gaussian"
RUN="$RUN --set controls=2 --methods $ROWS"
$RUN --seeds 131 --out runs/cifar10
# A study of several seeds can be computed seed by seed, with the same versions:
# $RUN --seeds 42 --out runs/cifar10-42
# python -m benchmarks.reproduction.join runs/cifar10 runs/cifar10-42 --out runs/cifar10-seeds
