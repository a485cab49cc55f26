#!/usr/bin/env bash
# Build wheel and sdist, install each into an empty environment outside the repository, and use it there.
set -euo pipefail
unset PYTHONPATH # nothing of the repository may be found but by installing it
here="$(cd "$(dirname "$0")/.." && pwd)"
python="${1:-python3}"
away="$(mktemp -d)"
trap 'rm -rf "$away"' EXIT
rm -rf "$here/dist"
"$python" -m build --outdir "$here/dist" "$here"
for package in "$here"/dist/*.whl "$here"/dist/*.tar.gz; do
  echo "release check: $(basename "$package")"
  cd "$away"
  rm -rf env work
  python3 -m venv "$away/env"
  "$away/env/bin/pip" install --quiet -c "$here/constraints-cpu.txt" "$package"
  mkdir "$away/work"
  cd "$away/work"
  "$away/env/bin/python" - "$here" <<'PYTHON'
import sys
import residuum
assert not residuum.__file__.startswith(sys.argv[1]), residuum.__file__
for name in residuum.__all__:
    getattr(residuum, name)
print("residuum", residuum.__version__, "from", residuum.__file__)
PYTHON
  "$away/env/bin/residuum" --version
  "$away/env/bin/residuum" list > /dev/null
  "$away/env/bin/residuum" run tiny --methods gd,rurk --seeds 1 --workers 1 > /dev/null
  test -s runs/tiny/report.html
  "$away/env/bin/python" - "$here/README.md" <<'PYTHON'
import re, sys
blocks = re.findall(r"^```python\n(.*?)^```", open(sys.argv[1], encoding="utf-8").read(), re.M | re.S)
for block in blocks:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
print(len(blocks), "snippets of the README ran")
PYTHON
done
[ -z "${FULL:-}" ] || "$away/env/bin/residuum" run digits > /dev/null
echo "release check: passed"
