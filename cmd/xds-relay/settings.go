package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/config"
)

// settings are the flags that make up a configuration: a file, flags for the
// usual keys, and --set for all others. A flag goes before the file.
type settings struct {
	file     string
	set      []string
	upstream string
	from     string
	listen   []string
	admin    string
	nodeID   string
	logLevel string
}

// flags are the flags with a key of their own.
var flagKeys = []struct{ flag, key string }{
	{"upstream", "upstream.address"},
	{"from", "upstream.address"},
	{"listen", "downstream.listen"},
	{"admin", "admin.listen"},
	{"node-id", "upstream.node.id"},
	{"log-level", "log.level"},
}

func (s *settings) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.file, "config", "c", "", "configuration file, YAML; none: all defaults")
	f.StringArrayVar(&s.set, "set", nil, "override one key, as in --set timers.settle=50ms (repeatable)")
	f.StringVar(&s.upstream, "upstream", "", "address of the control plane (upstream.address)")
	f.StringVar(&s.from, "from", "", "directory or file with resources, in place of a control plane (upstream.address: files:///path)")
	f.StringArrayVar(&s.listen, "listen", nil, "address to serve clients on, host:port or unix:///path (downstream.listen, repeatable)")
	f.StringVar(&s.admin, "admin", "", `address of the admin endpoint, "" for none (admin.listen)`)
	f.StringVar(&s.nodeID, "node-id", "", "node id towards the control plane (upstream.node.id)")
	f.StringVar(&s.logLevel, "log-level", "", "debug, info, warn or error (log.level)")
	completeFiles(cmd, "config", "yaml", "yml")
	_ = cmd.MarkFlagDirname("from") // it is defined above
	completeWords(cmd, "log-level", "debug", "info", "warn", "error")
}

// usualFile is what a configuration file is called in all examples.
const usualFile = "relay.yaml"

// isConfig reports whether an argument looks like a configuration file.
func isConfig(arg string) bool {
	return strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
}

// unread is a hint for somebody who gave no file although one lies here; empty: none.
func (s *settings) unread() string {
	if s.file != "" {
		return ""
	}
	if info, err := os.Stat(usualFile); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return "there is a " + usualFile + " here, which is not read without -c " + usualFile
}

// load is the configuration that the flags make up. Its errors are usage errors.
func (s *settings) load(cmd *cobra.Command) (*config.Config, error) {
	c, err := config.Load(s.file, s.set)
	if err != nil {
		return nil, &usageError{err}
	}
	from := ""
	if cmd.Flags().Changed("from") {
		if cmd.Flags().Changed("upstream") {
			return nil, &usageError{errors.New("--from and --upstream both name upstream.address; give one of them")}
		}
		if from, err = config.FilesAddress(s.from); err != nil {
			return nil, &usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	values := map[string]string{
		"from": from, "upstream": s.upstream, "admin": s.admin, "node-id": s.nodeID, "log-level": s.logLevel,
		"listen": "[" + strings.Join(quoteAll(s.listen), ", ") + "]",
	}
	for _, f := range flagKeys {
		if !cmd.Flags().Changed(f.flag) {
			continue
		}
		if err := c.Override("--"+f.flag, f.key, values[f.flag]); err != nil {
			return nil, &usageError{err}
		}
	}
	if err := c.Validate(); err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// quoteAll quotes addresses for a YAML list.
func quoteAll(values []string) []string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	return quoted
}
