#!/bin/bash
# Small CIFAR-5 from scratch, with the cpu profiles. DATA: the folder of cifar-10-batches-py.
residuum run small-cifar5 --data-root DATA --seeds 131 --methods soft_reset=soft_reset:keep=0.3:share=0.3 \
  --out runs/small-cifar5-cpu
QUARTER="soft_reset=soft_reset:keep=0.3:share=0.3:batch_share=0.25"
residuum run vgg11 --data-root DATA --seeds 131 --methods "ngd,rurk,rurk:bn_mode=eval,$QUARTER" --out runs/vgg11
residuum run small-cifar5 --data-root DATA --seeds 131 --request class=airplane --draws 5 \
  --methods "gd,ngd,ga,neggrad,eu_k,cf_k,scrub,ssd,rurk,rurk:bn_mode=eval,$QUARTER" --out runs/small-cifar5-class

# Half of the airplanes of 2,000 images of CIFAR-10
SHARES="keep0=soft_reset:keep=0,keep03=soft_reset:keep=0.3,keep07=soft_reset:keep=0.7,keep1=soft_reset:keep=1"
residuum run cifar10 --data-root DATA --seeds 131,42,7 --set controls=2 --out runs/cifar10 \
  --methods soft_reset,rurk,gd,ngd,ga,neggrad,eu_k,cf_k,scrub,ssd,$SHARES,keep05e10=soft_reset:keep=0.5:epochs=10
