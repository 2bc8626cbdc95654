package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPolicy: `policy test` and `policy lint` answer on standard output, with an exit code for programs.
func TestPolicy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules.yaml", documentedRules(t))
	write("wrong.yaml", "rules:\n  - identity: anonymous\n    read: [{types: [SDS], names: ['**']}]\n")
	write("relay.yaml", "downstream: {tls: {cert: no.crt, key: no.key, client_ca: no.ca}}\nauthz: {rules_file: rules.yaml}\n") // only the rules are read
	write("shared.yaml", "groups: {secrets: shared}\nauthz: {rules_file: rules.yaml}\n")
	write("apart.yaml", "groups: {secrets: identity}\nauthz: {rules_file: rules.yaml}\n")
	const web = " --identity spiffe://td/ns/shop/sa/web --node metadata.NAMESPACE=shop --node metadata.SERVICE_ACCOUNT=web"
	const gateway = " --identity spiffe://td/ns/mesh/sa/gateway"
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"test -c relay.yaml" + web + " --type CDS --name *", 0, "yes: rules.yaml:2 allows \"*\"\n"},
		{"test --rules rules.yaml" + web + " --type SDS --name kubernetes://shop/web/key", 0, "yes: rules.yaml:6 allows \"kubernetes://{ns}/{sa}/**\"\n  it comes by a stream of this identity's own"},
		{"test -c relay.yaml" + gateway + " --type SDS --name ROOTCA", 0, "yes: rules.yaml:7 allows \"ROOTCA\"\n  it comes by a stream that identities share"},
		{"test -c shared.yaml" + gateway + " --type SDS --name ROOTCA", 0, "since groups.secrets is shared"},
		{"test -c apart.yaml" + gateway + " --type SDS --name ROOTCA", 0, "since groups.secrets is identity"},
		{"test -c relay.yaml" + web + " --type SDS --name kubernetes://shop/bob/key", 1, "no: the client's rules for SDS do not allow \"kubernetes://shop/bob/key\"\n  rules.yaml:6: allows"},
		{"test -c relay.yaml --identity spiffe://other/a --type CDS --name *", 1, "no: no rule names \"spiffe://other/a\"\n"},
		{"test -c relay.yaml" + web, 2, "--type is missing; see xds-relay policy test --help\n"},
		{"test -c relay.yaml --identity web --type CDS --name a", 2, `--identity: "web" is none: write a URI`},
		{"test -c relay.yaml --identity anonymous --type CDX --name a", 2, `--type: "CDX" is no type; use a short name`},
		{"test -c relay.yaml --identity anonymous --node id --type CDS --name a", 2, `--node: "id" is no field with its value`},
		{"test -c relay.yaml --identity anonymous --node ip=1 --type CDS --name a", 2, `--node: "ip" is no field of a node that rules can name; use id, cluster`},
		{"test --rules wrong.yaml" + web + " --type CDS --name a", 2, "wrong.yaml:3:35: rules[0].read[0].names[0]: \"**\" is not allowed for Secrets\n    3 |"},
		{"test --rules none.yaml" + web + " --type CDS --name a", 2, `authz.rules_file: cannot read "none.yaml": no such file or directory`},
		{"test" + web + " --type CDS --name a", 2, "authz.rules_file is not set; there is a relay.yaml here, which is not read without -c relay.yaml\n"},
		{"test -c wrong.yaml" + web + " --type CDS --name a", 2, `wrong.yaml:1:1: unknown field "rules"`},
		{"lint -c relay.yaml", 0, "note: rules.yaml:2: its clients may say what they like in the node's id\n"},
		{"lint --rules rules.yaml", 0, "note: rules.yaml:2: never matches: no client proves who it is"},
		{"lint --rules wrong.yaml", 2, "is not allowed for Secrets"},
		{"lnt", 2, `unknown command "lnt"; did you mean "lint"?`},
		{"", 0, "Available Commands"},
	} {
		cmd := program(t, append([]string{"policy"}, strings.Fields(tt.args)...)...)
		cmd.Dir = dir
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		code := 0
		if err := cmd.Run(); err != nil {
			exit := (*exec.ExitError)(nil)
			if !errors.As(err, &exit) {
				t.Fatal(err)
			}
			code = exit.ExitCode()
		}
		said, silent := out.String(), errs.String()
		if tt.code == exitUsage {
			said, silent = silent, said
		}
		if code != tt.code || !strings.Contains(said, tt.says) || silent != "" {
			t.Errorf("policy %s: exit code %d, it says\n%s%s\nwant %d, and\n%s", tt.args, code, said, silent, tt.code, tt.says)
		}
	}
}

// TestValidateRules: validate has notes about rules, and their mistakes with line and column.
func TestValidateRules(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		rules string
		code  int
		says  string
	}{
		{documentedRules(t), 0, "the configuration is valid"},
		{"rules: [{identity: anonymous, read: [{types: [EDS], names: [a]}]}]", 0, "note: FILE: no rule of authz.rules_file reads LDS or CDS"},
		{"rules:\n  - identity: anonymous\n    raed: []\n", 2, "FILE:3:5: unknown field \"raed\"\n    3 |     raed: []\n      |     ^\n  hint: did you mean \"read\"?\n"},
		{"", 2, "FILE: rules: there are no rules, so that nobody could connect\n  hint: "},
	} {
		path := filepath.Join(dir, "rules.yaml")
		if err := os.WriteFile(path, []byte(tt.rules), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := program(t, "validate", "--set", "authz.rules_file="+path).CombinedOutput()
		said := strings.ReplaceAll(string(out), path, "FILE")
		if failed := err != nil; failed != (tt.code != 0) || !strings.Contains(said, tt.says) {
			t.Errorf("%s\nit says (%v)\n%s\nwant\n%s", tt.rules, err, said, tt.says)
		}
	}
}
