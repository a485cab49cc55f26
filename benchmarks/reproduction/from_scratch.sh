#!/bin/bash
# Networks trained from scratch, with the cpu profiles. DATA: the folder of cifar-10-batches-py.
QUARTER="soft_reset=soft_reset:keep=0.3:share=0.3:batch_share=0.25"
residuum run vgg11 --data-root DATA --seeds 131 --methods "ngd,rurk,rurk:bn_mode=eval,$QUARTER" --out runs/vgg11
residuum run small-cifar5 --data-root DATA --seeds 131 --request class=airplane --draws 5 \
  --methods "gd,ngd,ga,neggrad,eu_k,cf_k,scrub,ssd,rurk,rurk:bn_mode=eval,$QUARTER" --out runs/small-cifar5-class
