package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/sassoftware/go-rpmutils"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkout is found before a test goes elsewhere.
var checkout, checkoutErr = filepath.Abs("../..")

// packed is a release of a relay, which need not be a program.
func packed(t *testing.T, version, relay string) *release {
	t.Helper()
	r := staged(t, version, relay)
	if err := r.pack(); err != nil {
		t.Fatal(err)
	}
	if err := checksums(r.out); err != nil {
		t.Fatal(err)
	}
	return r
}

// staged is a release of which nothing is packed yet.
func staged(t *testing.T, version, relay string) *release {
	t.Helper()
	if err := checkoutErr; err != nil {
		t.Fatal(err)
	}
	t.Chdir(checkout)
	r := &release{version: version, root: checkout, date: time.Unix(1700000000, 0).UTC(), stage: t.TempDir(), out: t.TempDir()}
	for _, p := range platforms {
		name := filepath.Join(p.String(), "xds-relay")
		if err := r.put(name, []byte(relay)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"completion/bash", "completion/zsh", "completion/fish", "xds-relay.1", "xds-relay.1.gz", "THIRD_PARTY_LICENSES"} {
		if err := r.put(name, []byte(name+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// of is a file of the release for a platform.
func (r *release) of(p platform, end string) string { return filepath.Join(r.out, r.name(p)+end) }

var linux = platform{"linux", "amd64"}

// TestTwiceTheSame: what is packed depends on what is packed and on the commit only, not on when or where.
func TestTwiceTheSame(t *testing.T) {
	sums := func() string {
		sums, err := os.ReadFile(filepath.Join(packed(t, "v1.2.3", "relay").out, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(sums)
	}
	first := sums()
	time.Sleep(1100 * time.Millisecond) // packages have times in seconds
	if second := sums(); first != second || strings.Count(first, "\n") != 4+2*3 {
		t.Errorf("sums\n%s\nand\n%s", first, second)
	}
}

// TestArchive: the relay is there once the archive is unpacked as README.md says, and so is what goes with it.
func TestArchive(t *testing.T) {
	r := packed(t, "v0.1.0", "#!/bin/sh\necho this is the relay\n")
	check := exec.Command("sha256sum", "--check", "--ignore-missing", sumsFile)
	check.Dir = r.out
	if said, err := check.CombinedOutput(); err != nil || bytes.Count(said, []byte(": OK\n")) != 4+2*3 {
		t.Errorf("%v\n%s", err, said)
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-xzf", r.of(linux, ".tar.gz"))
	unpack.Dir = dir
	if said, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if said, err := exec.Command(filepath.Join(dir, "xds-relay_0.1.0_linux_amd64/xds-relay"), "demo").CombinedOutput(); err != nil || string(said) != "this is the relay\n" {
		t.Errorf("%v\n%s", err, said)
	}
	f, err := os.Open(r.of(platform{"darwin", "arm64"}, ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]fs.FileMode{}
	for a := tar.NewReader(z); ; {
		h, err := a.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.FileInfo().Mode()
	}
	for name, mode := range map[string]fs.FileMode{"xds-relay": 0o755, "xds-relay.1": 0o644, "LICENSE": 0o644, "NOTICE": 0o644, "THIRD_PARTY_LICENSES": 0o644, "completion/bash": 0o644} {
		if got := modes["xds-relay_0.1.0_darwin_arm64/"+name]; got != mode {
			t.Errorf("%s has mode %v, want %v; there is %v", name, got, mode, modes)
		}
	}
}

func TestImage(t *testing.T) {
	r := packed(t, "v1.2.3", "relay")
	image, err := tarball.ImageFromPath(r.of(linux, ".image.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || c.Healthcheck == nil || c.Entrypoint[0] != "/xds-relay" || config.Architecture != "amd64" {
		t.Errorf("%+v", c)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var names []string
	for a := tar.NewReader(content); ; {
		h, err := a.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s %o %d", h.Name, h.Mode, h.Uid))
		if h.Name == "etc/ssl/certs/ca-certificates.crt" && h.Size < 100_000 {
			t.Errorf("the authorities have %d bytes", h.Size)
		}
	}
	for _, want := range []string{"xds-relay 755 0", "var/lib/xds-relay/ 700 65532", "etc/ssl/certs/ca-certificates.crt 644 0"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	// What `docker build` makes is the same.
	dockerfile, err := os.ReadFile(filepath.Join(r.root, "deploy/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"USER " + c.User, fmt.Sprintf("CMD [%q]", c.Healthcheck.Test[1:]), fmt.Sprintf("ENTRYPOINT [%q]", c.Entrypoint), fmt.Sprintf("CMD [%q]", c.Cmd)} {
		line = strings.ReplaceAll(strings.NewReplacer("[[", "[", "]]", "]").Replace(line), `" "`, `", "`)
		if !strings.Contains(string(dockerfile), line) {
			t.Errorf("deploy/Dockerfile has no %s", line)
		}
	}
}

func TestRPM(t *testing.T) {
	r := packed(t, "v1.2.3-rc.1", "relay")
	f, err := os.Open(r.of(linux, ".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	nevra, err := rpm.Header.GetNEVRA()
	if err != nil || nevra.Version != "1.2.3~rc.1" || nevra.Arch != "x86_64" {
		t.Errorf("%+v, %v", nevra, err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	const configNoReplace = 1 | 1<<4 // RPMFILE_CONFIG, RPMFILE_NOREPLACE
	found := map[string]bool{}
	for _, f := range files {
		found[f.Name()] = true
		if f.Name() == "/etc/xds-relay/relay.yaml" && (f.Flags() != configNoReplace || f.GroupName() != "xds-relay" || f.Mode()&0o777 != 0o640) {
			t.Errorf("the configuration: flags %x, group %s, mode %o", f.Flags(), f.GroupName(), f.Mode())
		}
	}
	for _, name := range []string{"/usr/bin/xds-relay", "/etc/xds-relay/relay.yaml", "/usr/lib/systemd/system/xds-relay.service", "/usr/share/man/man1/xds-relay.1.gz", "/usr/share/zsh/site-functions/_xds-relay"} {
		if !found[name] {
			t.Errorf("no %s in %v", name, found)
		}
	}
	for tag, name := range map[int]string{rpmutils.PREIN: "preinstall", rpmutils.POSTIN: "postinstall", rpmutils.PREUN: "preremove", rpmutils.POSTUN: "postremove"} {
		text, err := os.ReadFile("deploy/package/" + name + ".sh")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := rpm.Header.GetString(tag); err != nil || got != string(text) {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

// TestUnit: systemd understands the unit, which leaves little to a relay that is taken over.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here: install systemd")
	}
	text, err := os.ReadFile("../../deploy/package/xds-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "xds-relay.service")
	here := strings.ReplaceAll(string(text), "/usr/bin/xds-relay", "/bin/sh") // the program has to be there
	here = strings.ReplaceAll(here, "man:xds-relay(1) ", "")
	if err := os.WriteFile(unit, []byte(here), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || bytes.Contains(said, []byte("xds-relay.service:")) {
		t.Errorf("verify: %v\n%s", err, said)
	}
	if said, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold=20", unit).CombinedOutput(); err != nil {
		t.Errorf("more than 2.0 is exposed: %v\n%s", err, said)
	}
}

// TestSBOM: it has the modules and the library of Go, and the time of the commit.
func TestSBOM(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, file := &release{version: "v1.2.3", date: time.Unix(1700000000, 0).UTC()}, filepath.Join(t.TempDir(), "sbom")
	if err := r.sbom(binary, file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"bomFormat": "CycloneDX"`, `"timestamp": "2023-11-14T22:13:20Z"`, `"purl": "pkg:golang/github.com/goreleaser/nfpm/v2@v2.43.0`, `"purl": "pkg:golang/std@go1.`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s in\n%.3000s", want, text)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{"v0.1.0": true, "v1.20.3-rc.1": true, "0.1.0": false, "v1.2": false, "v01.2.3": false, "": false, "b6f5536f": false} {
		if semver.MatchString(version) != ok {
			t.Errorf("%q is a version: %v", version, !ok)
		}
	}
}

// TestNotes: the notes are the section of the version, without links of other sections.
func TestNotes(t *testing.T) {
	dir := t.TempDir()
	const text = "# Changelog\n\n## [Unreleased]\n\n- a\n\n## [1.1.0] - 2026-01-02\n\n### Added\n\n- b\n\n## [1.0.0] - 2026-01-01\n\n- c\n\n[Unreleased]: https://example.com\n"
	if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"v1.1.0": "### Added\n\n- b\n", "v1.0.0": "- c\n"} {
		if got, err := releaseNotes(dir, version); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
	if _, err := releaseNotes(dir, "v1.2.0"); err == nil || !strings.Contains(err.Error(), "no section ## [1.2.0]; move") {
		t.Error(err)
	}
}

// TestForeignDirectory: what is not a release is not removed; one that failed is.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := emptied(dir); err == nil {
		t.Error("a directory with files is taken")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := emptied(dir); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(mine, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checksums(dir); err != nil {
		t.Fatal(err)
	}
	if sums, err := os.ReadFile(filepath.Join(dir, sumsFile)); err != nil || strings.Count(string(sums), "\n") != 1 {
		t.Errorf("%q, %v", sums, err)
	}
}
