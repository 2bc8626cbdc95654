package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/console"
)

// The bounds of a dump.
const (
	dumpNames     = "1000" // of each client that is described
	dumpResources = 20_000
	dumpClients   = 20_000
)

// dump is everything that a support case needs. It has no bodies of resources and no versions of Secrets.
type dump struct {
	Made    time.Time   `json:"made_at"`
	By      admin.Build `json:"made_by"`
	Address string      `json:"address"`
	// Answers are those of the relay's endpoints: JSON as it is, and other text as a string.
	Answers map[string]json.RawMessage `json:"answers"`
	// Clients are the worst of Total, and Details the worst of these with their names.
	Total   int               `json:"clients_total"`
	Clients []clientView      `json:"clients"`
	Details []json.RawMessage `json:"client_details"`
	// Resources are those of all groups, and MoreResources says that there are others.
	Resources     []resourceView  `json:"resources"`
	MoreResources bool            `json:"more_resources,omitempty"`
	Config        json.RawMessage `json:"config,omitempty"`
	// Errors say what could not be had.
	Errors map[string]string `json:"errors,omitempty"`
}

func newDump() *cobra.Command {
	var a asking
	var file string
	var details int
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Write everything that a support case needs about a running relay as one JSON file",
		Long: `Write what a running relay says of itself as one JSON document: version, readiness, control
planes, clients, the names of those clients that are furthest behind, resources, what does
not hold that should, and metrics; with -c also the configuration, headers redacted. It has
no bodies of resources, and no versions of Secrets, but it has names, node ids, addresses
and identities of clients. A file is for its owner only (mode 0600).

` + askingHelp,
		Example: `  xds-relay dump -o relay-dump.json
  xds-relay dump -c relay.yaml | gzip > relay-dump.json.gz`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if details < 0 || details > 10_000 {
				return &usageError{fmt.Errorf("--clients is %d; use a number from 0 to 10000", details)}
			}
			relay, err := a.open()
			if err != nil {
				return err
			}
			defer relay.Close()
			ctx, stop := interruptible(cmd)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
			d := &dump{Made: time.Now().UTC(), By: admin.ReadBuild(version), Address: relay.Address(), Answers: make(map[string]json.RawMessage), Errors: make(map[string]string)}
			if err := d.collect(ctx, relay, details); err != nil {
				return err
			}
			if a.file != "" {
				d.note("config", d.configOf(a.file))
			}
			if file == "" || file == "-" {
				return console.WriteJSON(cmd.OutOrStdout(), d)
			}
			if err := writeOwn(file, func(w io.Writer) error { return console.WriteJSON(w, d) }); err != nil {
				return fmt.Errorf("the dump cannot be written: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s, %s; %s\n", file, console.Things(len(d.Clients), "client"), console.Things(len(d.Resources), "resource"), "it has names and addresses of clients")
			return nil
		},
	}
	a.register(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; none: standard output")
	cmd.Flags().IntVar(&details, "clients", 100, "how many clients to describe with all their names, the worst first")
	completeFiles(cmd, "output", "json")
	return cmd
}

// note notes what could not be had.
func (d *dump) note(what string, err error) {
	if err != nil {
		d.Errors[what] = err.Error()
	}
}

// collect asks the relay for everything. The error is that nobody answers.
func (d *dump) collect(ctx context.Context, relay *adminclient.Client, details int) error {
	for _, path := range []string{"/server_info", "/groups"} {
		var answer json.RawMessage
		if err := relay.Get(ctx, path, nil, &answer); err != nil {
			return answered(err)
		}
		d.Answers[path] = answer
	}
	for _, path := range []string{"/readyz", "/livez", "/startupz"} {
		d.text(ctx, relay, path, url.Values{"verbose": {""}})
	}
	for _, path := range []string{"/debug/check", "/metrics"} {
		d.text(ctx, relay, path, nil)
	}
	var events json.RawMessage
	if err := relay.Get(ctx, "/events", nil, &events); err == nil {
		d.Answers["/events"] = events
	} else if said := (*adminclient.StatusError)(nil); !errors.As(err, &said) || said.Code != http.StatusNotFound {
		d.note("/events", err)
	}
	var err error
	if d.Clients, err = clientsOf(ctx, relay, nil); err != nil {
		d.note("/clients", err)
	}
	slices.SortFunc(d.Clients, worse)
	d.Total = len(d.Clients)
	d.Clients = d.Clients[:min(d.Total, dumpClients)]
	for _, c := range d.Clients[:min(len(d.Clients), details)] {
		var one json.RawMessage
		path := fmt.Sprintf("/clients/%d", c.Stream)
		if err := relay.Get(ctx, path, url.Values{"limit": {dumpNames}}, &one); err != nil {
			d.note(path, err) // it may have left
			continue
		}
		d.Details = append(d.Details, one)
	}
	r := resources{limit: dumpResources}
	d.Resources, d.MoreResources, err = r.ask(ctx, relay, url.Values{})
	d.note("/resources", err)
	return nil
}

// text adds what is no JSON, also where it is a refusal, as of a relay that is not ready.
func (d *dump) text(ctx context.Context, relay *adminclient.Client, path string, query url.Values) {
	text, err := relay.Text(ctx, path, query)
	if said := (*adminclient.StatusError)(nil); errors.As(err, &said) {
		text, err = fmt.Sprintf("%d: %s", said.Code, said.Text), nil
	}
	if err != nil {
		d.note(path, err)
		return
	}
	d.Answers[path], _ = json.Marshal(strings.ToValidUTF8(text, "\uFFFD")) // a string
}

// configOf adds the configuration of a file, redacted.
func (d *dump) configOf(file string) error {
	c, err := config.Load(file, nil)
	if err != nil {
		return err
	}
	d.Config, err = c.JSON(false)
	return err
}

// writeOwn writes a file that only its owner can read, as a whole or not at all.
func writeOwn(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".xds-relay-dump-*") // of mode 0600
	if err != nil {
		return err
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
