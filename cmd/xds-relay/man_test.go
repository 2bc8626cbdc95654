package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestMan: the manual page has each command with its flags, and man has nothing to complain about.
func TestMan(t *testing.T) {
	page, err := program(t, "man").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n.SS xds\\-relay serve [flags]\n", "\n.SS xds\\-relay policy test ", "\n.B \\-c, \\-\\-config \\fIstring\\fR\n", "\n.SH SEE ALSO\n", "XDS_RELAY_ADDRESS"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("the rest needs groff")
	}
	cmd := exec.Command(groff, "-k", "-man", "-Tutf8", "-ww") // -k: as man reads it, which is UTF-8
	cmd.Stdin = bytes.NewReader(page)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	shown, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Errorf("groff: %v\n%s", err, &complaints)
	}
	if !bytes.Contains(shown, []byte("--set timers.name_linger=1m")) {
		t.Error("an example cannot be copied from the page")
	}
}
