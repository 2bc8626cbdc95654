package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReloadOfRules: who asks for a reload gets the rules that are on disk, at once, or hears what is wrong with them.
func TestReloadOfRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	rules := func(n int) string {
		return "rules:\n" + strings.Repeat("  - {identity: anonymous, read: [{types: [CDS], names: [a]}]}\n", n)
	}
	write(rules(1))
	config := "authz: {rules_file: " + path + "}\n"
	r := serveFile(t, config)

	write("rules:\n  - {identity: anonymous, raed: []}\n")
	if code, body := r.reload(config); code != http.StatusBadRequest || !strings.Contains(body, path+`:2:27: unknown field "raed" (did you mean "read"?)`) || strings.Contains(body, "{identity") {
		t.Errorf("of wrong rules it says %d, %s", code, body)
	}
	eventually(t, "the metrics tell of wrong rules", func() bool {
		return r.metric("xds_relay_authz_rules_last_reload_successful") == 0 && r.metric("xds_relay_authz_rules_reloads_total") == 1
	})

	write(rules(1)) // those that are in force
	if code, body := r.reload(config); code != http.StatusOK || r.metric("xds_relay_authz_rules_last_reload_successful") != 1 {
		t.Errorf("of the rules before it says %d, %s, and the metric still tells of wrong ones", code, body)
	}

	told := false
	for n := 2; n < 10 && !told; n++ { // who follows the file may have been quicker
		write(rules(n))
		code, body := r.reload(config)
		if told = strings.Contains(body, "read again, and in force: the file of authz.rules_file\n"); code != http.StatusOK {
			t.Errorf("of good rules it says %d, %s", code, body)
		}
		if r.metric("xds_relay_authz_rules_last_reload_successful") != 1 {
			t.Error("the metric tells of wrong rules")
		}
	}
	if !told {
		t.Error("it does not say that the rules have changed")
	}
	if _, body := r.reload(config); body != "nothing has changed\n" {
		t.Errorf("without a change it says %q", body)
	}

	write(rules(20))
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	inForce := fmt.Sprintf(`"msg":"rules in force","component":"authz","path":%q,"rules":20`, path)
	eventually(t, inForce, func() bool { return strings.Contains(r.log.String(), inForce) })
	r.end()
}
