"""Additions to the site: files outside `docs/`, and a policy against loading anything from elsewhere.

Pages link to results, examples and sources where they lie in the repository. In the site such a link leads to a copy:
`../results/nchain/lengths.png` becomes `project/results/nchain/lengths.png`, and a link to a folder leads to its
README.md if it has one, else to a list of its files.
"""

import os
import re
from pathlib import Path
from posixpath import relpath

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PLACE = "project"
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Source code is shown and not downloaded.
SHOWN = {".py": "python", ".yml": "yaml", ".toml": "toml"}
POLICY = "default-src 'self' file: data: blob: 'unsafe-inline'; base-uri 'self'"


def on_files(files: Files, config) -> Files:
    """Adds the files outside `docs/` that pages link to."""
    pages = [(file.src_uri, Path(file.abs_src_path).read_text()) for file in files.documentation_pages()]
    todo = [path for uri, text in pages for path in _outside("docs/" + uri, text)]
    done: set[str] = set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        uri, text = _page(path)
        if text is None:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
        else:
            files.append(File.generated(config, uri, content=text))
            todo += _outside(_home(uri), text)
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Turns links that leave `docs/` to the copies, and links from the copies back."""
    uri = page.file.src_uri
    home = _home(uri)

    def turned(match: re.Match) -> str:
        path = _resolve(home, match[2])
        if path is None or not (ROOT / path).exists():
            return match[0]
        there = path.removeprefix("docs/") if path.startswith("docs/") else _page(path)[0]
        return match[1] + relpath(there, os.path.dirname(uri) or ".") + match[3]

    return _outside_code(markdown, lambda text: LINK.sub(turned, text))


def on_post_page(output: str, **facts) -> str:
    """A page may load from where it lies and from nowhere else."""
    return _closed(output)


def on_post_template(output_content: str, template_name: str, **facts) -> str:
    """The same for files that are not pages, such as 404.html."""
    return _closed(output_content) if template_name.endswith(".html") else output_content


def _closed(output: str) -> str:
    return output.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{POLICY}">', 1)


def _outside_code(markdown: str, change) -> str:
    """`change` applied to all but fenced code."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _resolve(home: str, target: str) -> str | None:
    """Path in the repository that `target` means on the page at `home`; None for one beyond it."""
    path = os.path.normpath(os.path.join(os.path.dirname(home), target))
    return None if path.startswith("..") else path


def _outside(home: str, text: str) -> list[str]:
    """Files and folders of the repository, beyond `docs/`, that a page links to."""
    found = []
    _outside_code(text, lambda part: found.extend(match[2] for match in LINK.finditer(part)) or part)
    paths = [_resolve(home, target) for target in found]
    return [path for path in paths if path and not path.startswith("docs/") and (ROOT / path).exists()]


def _page(path: str) -> tuple[str, str | None]:
    """The address of a file or folder of the repository in the site, and its Markdown; None for an unchanged copy."""
    source = ROOT / path
    if source.is_dir():
        if (source / "README.md").exists():
            return _page(f"{path}/README.md")
        names = sorted(file.name for file in source.iterdir() if file.is_file() and not file.name.startswith("."))
        lines = "\n".join(f"- [{name}]({name})" for name in names)
        return f"{PLACE}/{path}/README.md", f"# {path}\n\n{lines}\n"
    if source.suffix == ".md":
        return f"{PLACE}/{path}", source.read_text()
    if source.suffix in SHOWN:
        return f"{PLACE}/{path}.md", f"# {path}\n\n```{SHOWN[source.suffix]}\n{source.read_text()}```\n"
    return f"{PLACE}/{path}", None


def _home(uri: str) -> str:
    """Where in the repository a page of the site comes from, as far as its links are concerned."""
    return uri.removeprefix(PLACE + "/") if uri.startswith(PLACE + "/") else f"docs/{uri}"
