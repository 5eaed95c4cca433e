"""Scripts of others are those that their packages contain."""

import hashlib

from zae_limiter_dashboard.app import STATIC

VENDOR = STATIC / "vendor"


def test_vendored_files_are_unchanged():
    lines = (VENDOR / "checksums.txt").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    for name, digest in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    others = {each.name for each in VENDOR.iterdir()} - listed.keys()
    assert others == {"README.md", "checksums.txt"}


def test_every_vendored_package_has_its_licence():
    readme = (VENDOR / "README.md").read_text()
    for script in VENDOR.glob("*.js"):
        licence = f"{script.name.partition('.')[0]}.LICENSE"
        assert (VENDOR / licence).exists()
        assert f"`{script.name}`" in readme
        assert f"`{licence}`" in readme


def test_no_page_names_another_host():
    for file in (*STATIC.glob("*.*"), *(STATIC.parent / "templates").iterdir()):
        text = file.read_text()
        assert "https://" not in text, file
        assert text.replace("http://www.w3.org/2000/svg", "").count("http://") == 0, file
