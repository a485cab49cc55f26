#!/bin/bash
# Small CIFAR-5 from pre-trained weights: the tables of docs/benchmarks/cifar10-details.md, 50 minutes to 2 hours each
# on one core. WEIGHTS: a ResNet-18 pre-trained on CIFAR-10 without the images of rank 4500 to 4999 of each class.
# DATA: the folder of cifar-10-batches-py.
PAPER="--profile paper --init-from WEIGHTS --data-root DATA --precision bf16-mixed --set retrain_epochs=25 --set relearn.epochs=5"
RUN="residuum run small-cifar5 $PAPER"
RADII="0,0.00784313725490196,0.01568627450980392,0.03137254901960784"
SOFT="soft_reset:fresh=initial:share=0.3:batch_share=0.25"

# Three seeds
ROWS="gd,neggrad,scrub,ssd,cf_k,rurk,rurk:attack=fgsm,soft_reset=$SOFT:keep=0.3,keep0=$SOFT:keep=0"
$RUN --seeds 131,42,7 --set controls=1 --methods $ROWS \
  --perturbations gaussian --draws 5 --set audit.taus.gaussian=$RADII --out runs/small-cifar5-seeds

# All methods and three attacks, one seed
PUBLISHED="gd,ngd,ga,neggrad,eu_k,cf_k,scrub,ssd,fisher,cr,ntk:max_iterations=8,rurk,rurk:attack=fgsm,rurk:attack=pgd"
ALL="$PUBLISHED,soft_reset=$SOFT:keep=0.3,keep0=$SOFT:keep=0"
$RUN --seeds 131 --methods $ALL \
  --perturbations gaussian --half-width 0.02 --max-draws 60 --out runs/small-cifar5
$RUN --seeds 131 --methods $ALL \
  --perturbations fgsm:target=random,fgsm:target=true --draws 1 \
  --set audit.taus.fgsm=0,0.01568627450980392,0.03137254901960784 --out runs/small-cifar5-fgsm
$RUN --seeds 131 --methods ngd,scrub,ntk:max_iterations=8,rurk,soft_reset=$SOFT:keep=0.3 \
  --perturbations pgd:target=random --draws 2 \
  --set audit.taus.pgd=0,0.00784313725490196,0.01568627450980392,0.023529411764705882,0.03137254901960784 \
  --out runs/small-cifar5-pgd

# RURK and batch-norm
EVAL="rurk:bn_mode=eval:epochs=1"
VARIANTS="rurk,eval=rurk:bn_mode=eval,eval1=$EVAL,tuned=$EVAL:lambda_f=0.003:lambda_a=0.003"
VARIANTS="$VARIANTS,tau 0=$EVAL:tau=0,tau 0.1=$EVAL:tau=0.1,lambda 0.01=$EVAL:lambda_f=0.01:lambda_a=0.01"
VARIANTS="$VARIANTS,lambda 0.1=$EVAL:lambda_f=0.1:lambda_a=0.1,v 3=$EVAL:v=3,fgsm=$EVAL:attack=fgsm,pgd=$EVAL:attack=pgd"
$RUN --seeds 131 --methods "$VARIANTS,soft_reset=$SOFT:keep=0.3" \
  --perturbations gaussian --draws 5 --set audit.taus.gaussian=0,0.03137254901960784 --out runs/rurk-ablation

# Settings chosen by tune
TUNE="residuum tune small-cifar5 $PAPER --seeds 131 --perturbations gaussian --draws 2 --set audit.taus.gaussian=$RADII"
$TUNE --method gd --grid lr=0.01,0.03,0.1
$TUNE --method ngd --grid lr=0.01,0.1 --grid sigma=0.003,0.01,0.03
$TUNE --method ga --grid lr=1e-5,1e-3,3e-3 --grid epochs=1,2,3 --grid bn_mode=train,eval
$TUNE --method ssd --grid alpha=10,30,50,70,100 --grid dampening=0.1,1
$TUNE --method fisher --grid alpha=1e-9,1e-8,1e-7
$TUNE --method rurk --grid bn_mode=eval,train --grid epochs=1 --grid lambda=0.003,0.01,0.03
$TUNE --method soft_reset --grid fresh=initial --grid share=0.3 --grid batch_share=0.25 --grid keep=0,0.1,0.3,0.5
TUNED="gd,gd tuned=gd:lr=0.03,ngd,ngd tuned=ngd:lr=0.01:sigma=0.01,ga,ga tuned=ga:lr=3e-3:epochs=2:bn_mode=train"
TUNED="$TUNED,ssd,ssd tuned=ssd:alpha=100:dampening=0.1,rurk,rurk tuned=$EVAL:lambda_f=0.003:lambda_a=0.003"
$RUN --seeds 131 --methods "$TUNED,soft_reset=$SOFT:keep=0.3,fisher,fisher tuned=fisher:alpha=1e-7" \
  --perturbations gaussian --draws 5 --set audit.taus.gaussian=$RADII --out runs/small-cifar5-tuned

# Settings that the paper left open
OPEN="gd,gd:augment=true,gd:drop_last=false,scrub,scrub:forget_batch_size=16,ssd,ssd:reference=retain"
$RUN --seeds 131 --methods $OPEN,cr,cr:step_size=0.5,rurk,rurk:augment=true \
  --perturbations gaussian --draws 5 --set audit.taus.gaussian=$RADII --out runs/small-cifar5-left-open
