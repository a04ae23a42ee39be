#!/bin/bash
# research: three jobs in a row. Each starts only if the job before it ended well; else Slurm cancels the rest.
# Run where you submit jobs: PREPARE=a.sbatch TRAIN=b.sbatch EVALUATE=c.sbatch bash chain.sh
set -euo pipefail
: "${PREPARE:=prepare.sbatch}" "${TRAIN:=train.sbatch}" "${EVALUATE:=evaluate.sbatch}"
jobs=()

cancel() { # a chain without its end is of no use
  if [[ ${jobs[*]-} ]]; then scancel "${jobs[@]}"; fi
}
trap cancel ERR

add() {
  local id
  id=$(sbatch --parsable "$@")
  jobs+=("${id%%;*}")
}
after() {
  add --dependency="afterok:${jobs[-1]}" --kill-on-invalid-dep=yes "$@"
}

add "$PREPARE"
after "$TRAIN"
after "$EVALUATE"
echo "${jobs[@]}"
