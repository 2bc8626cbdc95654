package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// Notes are what valid rules say that their author may not have meant.
func (p *Policy) Notes() (notes []string) {
	reads := func(t cache.TypeURL) bool {
		return slices.ContainsFunc(p.rules, func(r *rule) bool { return r.reads[t] != nil })
	}
	if !reads(cache.Listener) && !reads(cache.Cluster) {
		notes = append(notes, "no rule of authz.rules_file reads LDS or CDS, so that no Envoy gets a configuration; with a file every type needs a rule")
	}
	if free := p.free(); len(free) > 0 {
		notes = append(notes, fmt.Sprintf("clients are grouped by fields that no rule of authz.rules_file can bind, and may say there what they like: %s", strings.Join(free, ", ")))
	}
	return notes
}

// free are the entries of group keys that rules leave to clients.
func (p *Policy) free() (free []string) {
	for _, entry := range p.config.KeyEntries() {
		switch {
		case entry == config.WholeNode:
			free = append(free, "the node except id")
		case entry == "identity", strings.HasPrefix(entry, "constant."), nodeFields[entry] != nil, strings.HasPrefix(entry, metadataPrefix):
		default:
			free = append(free, entry)
		}
	}
	return free
}
