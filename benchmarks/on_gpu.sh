#!/bin/bash
# Work for a machine with a GPU that is lent for minutes: the tests that need one, then a study.
#
#     benchmarks/on_gpu.sh tests
#     benchmarks/on_gpu.sh study STUDY OUT SECONDS WORKERS
#
# The study ends after SECONDS, or earlier if it is complete. Results are in OUT/results.jsonl as
# soon as their run has ended; a run that was cut goes on when the command is called again with the
# same OUT. FEDWARD_DATA names the folder of data sets. PYTHON is the interpreter (default: python3).
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export OMP_NUM_THREADS=1
python=${PYTHON:-python3}

case ${1:-} in
tests)
    exec "$python" -m pytest tests/gpu -q -p no:cacheprovider --durations=5
    ;;
study)
    [ $# = 5 ] || { echo "expected: $0 study STUDY OUT SECONDS WORKERS" >&2; exit 2; }
    timeout --signal=INT --kill-after=15 "$4" \
        "$python" -m fedward bench "benchmarks/studies/$2.json" --out "$3" --workers "$5"
    code=$?
    # 124 and 130: the time was over.
    case $code in 124 | 130) exit 0 ;; *) exit $code ;; esac
    ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
