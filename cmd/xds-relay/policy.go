package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/policy"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Ask the rules of authz.rules_file who may read what",
		Example: `  xds-relay policy test -c relay.yaml --identity spiffe://example.org/ns/shop/sa/web --type CDS --name '*'
  xds-relay policy lint -c relay.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("unknown command %q; %s", args[0], instead(cmd, args[0]))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyTest(), newPolicyLint())
	return cmd
}

// rulesOf are the flags that say which rules, and for which configuration.
type rulesOf struct {
	settings
	rules string
}

func (r *rulesOf) register(cmd *cobra.Command) {
	r.settings.register(cmd)
	cmd.Flags().StringVar(&r.rules, "rules", "", "file of rules, instead of what authz.rules_file names")
	completeFiles(cmd, "rules", "yaml", "yml")
}

// load reads the rules, and the configuration that they are for. No other file that it names need be there.
func (r *rulesOf) load(cmd *cobra.Command) (*relay.Rules, *config.Config, error) {
	c, err := r.settings.load(cmd)
	if err != nil {
		return nil, nil, err
	}
	if r.rules != "" {
		c.Authz.RulesFile = r.rules
	}
	if c.Authz.RulesFile == "" {
		hint := "give -c a configuration that sets it, or --rules a file"
		if r.unread() != "" {
			hint = r.unread()
		}
		return nil, nil, &usageError{errors.New("there are no rules to ask, since authz.rules_file is not set; " + hint)}
	}
	rules, err := relay.LoadRules(c)
	if err != nil {
		return nil, nil, &usageError{err}
	}
	return rules, c, nil
}

// question is what `policy test` is asked.
type question struct {
	identity, typ, name string
	fields              []string
}

func newPolicyTest() *cobra.Command {
	var from rulesOf
	var q question
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Say whether a client may read a name, and by which rule",
		Long: `Say whether the rules let a client read a name of a type, and which rule it is. If they
do not, say why: no rule names the identity; or rules name it, but do not admit the node,
and which field differs; or none reads the type; or none allows the name. Nothing is asked
but the files: no relay need run.

The identity is what the log and /clients have as the client's: spiffe://… or another
URI, dns:NAME or subject:NAME of its certificate, unix:uid=N of a process on a Unix
socket, or anonymous. Fields of the node are named as in rules. The name '*' is the
wildcard.

Exits with 0 for yes, 1 for no, and 2 if the command line, the configuration or the rules
are wrong.`,
		Example: `  xds-relay policy test -c relay.yaml --identity spiffe://example.org/ns/shop/sa/web --type CDS --name '*'
  xds-relay policy test --rules rules.yaml --identity dns:web.example.org --node id=web-1 --node metadata.NAMESPACE=shop --type SDS --name kubernetes://shop/web-key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, node, err := q.parsed(cmd)
			if err != nil {
				return &usageError{err}
			}
			rules, c, err := from.load(cmd)
			if err != nil {
				return err
			}
			verdict := rules.Judge(q.identity, node, t, q.name)
			answer(cmd.OutOrStdout(), verdict, c)
			if !verdict.Allowed {
				return &saidError{errors.New("no")}
			}
			return nil
		},
	}
	from.register(cmd)
	f := cmd.Flags()
	f.StringVar(&q.identity, "identity", "", "identity of the client, such as spiffe://example.org/ns/shop/sa/web")
	f.StringArrayVar(&q.fields, "node", nil, "field of the client's node, as in --node id=web-1 (repeatable)")
	f.StringVar(&q.typ, "type", "", "type of the resource: a short name such as CDS, or a type URL")
	f.StringVar(&q.name, "name", "", "name of the resource, or '*' for the wildcard")
	completeWords(cmd, "type", "LDS", "RDS", "CDS", "EDS", "SDS", "SRDS", "VHDS", "RTDS", "ECDS", "LEDS")
	return cmd
}

// parsed reads the flags.
func (q *question) parsed(cmd *cobra.Command) (cache.TypeURL, *core.Node, error) {
	for _, f := range []struct{ flag, value string }{{"identity", q.identity}, {"type", q.typ}, {"name", q.name}} {
		if f.value == "" {
			return "", nil, fmt.Errorf("--%s is missing; see %s --help", f.flag, cmd.CommandPath())
		}
	}
	if err := policy.CheckIdentity(q.identity); err != nil {
		return "", nil, fmt.Errorf("--identity: %w", err)
	}
	url, known := config.TypeURL(q.typ)
	if !known {
		return "", nil, fmt.Errorf("--type: %q is no type; use a short name such as CDS, or a type URL", q.typ)
	}
	node := &core.Node{}
	for _, field := range q.fields {
		name, value, pair := strings.Cut(field, "=")
		if !pair {
			return "", nil, fmt.Errorf("--node: %q is no field with its value; write it as in --node id=web-1", field)
		}
		if err := policy.SetField(node, name, value); err != nil {
			return "", nil, fmt.Errorf("--node: %w", err)
		}
	}
	return cache.TypeURL(url), node, nil
}

// answer prints a verdict.
func answer(w io.Writer, v policy.Verdict, c *config.Config) {
	if !v.Allowed {
		fmt.Fprintf(w, "no: %s\n", strings.Join(v.Because, "\n  "))
		return
	}
	fmt.Fprintf(w, "yes: %s allows %q\n", v.Place, v.Pattern)
	switch mode := c.Groups.EffectiveSecrets(); {
	case !v.Secret:
	case mode == config.SecretsShared:
		fmt.Fprintln(w, "  it comes by the stream of the client's group, since groups.secrets is shared")
	case mode == config.SecretsIdentity:
		fmt.Fprintln(w, "  it comes by a stream of this identity's own, since groups.secrets is identity")
	case v.Shared:
		fmt.Fprintln(w, "  it comes by a stream that identities share: each of the client's rules for the type says share: true")
	default:
		fmt.Fprintln(w, "  it comes by a stream of this identity's own: not each of the client's rules for the type says share: true")
	}
}

func newPolicyLint() *cobra.Command {
	var from rulesOf
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "Say what in valid rules may not be meant",
		Long: `Say which rules can never match under this configuration, which have no effect beside
another one, which leave fields of the node to their clients, and what every rule allows.

Exits with 0 if the rules are valid, whatever it says of them, and with 2 if the command
line, the configuration or the rules are wrong.`,
		Example: `  xds-relay policy lint -c relay.yaml
  xds-relay policy lint -c relay.yaml --rules new-rules.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules, _, err := from.load(cmd)
			if err != nil {
				return err
			}
			lines := rules.Lint()
			for _, line := range lines {
				fmt.Fprintf(cmd.OutOrStdout(), "note: %s\n", line)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the rules are valid; %d rules, %d notes\n", rules.Len(), len(lines))
			return nil
		},
	}
	from.register(cmd)
	return cmd
}
