package relay

import (
	"cmp"
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/policy"
)

// Who is served the types that are secret, and from which groups (NODE-6).

// needRules is what clients learn that are refused such a type because no rules say who may read it.
const needRules = "secrets are served here to clients that a rule allows to read them, and there are no rules; see authz.rules_file, or groups.secrets"

// secretsOf makes a place one from which a client may be served secrets, if there is one for it.
func (g Grouping) secretsOf(p *Place, client session.Peer, node *core.Node, reads *policy.Reads) *session.End {
	switch mode := g.config.Groups.EffectiveSecrets(); {
	case mode == config.SecretsShared, mode == config.SecretsPolicy && reads != nil && reads.Shared():
		return nil
	case mode == config.SecretsPolicy && reads == nil && !client.Local:
		return &session.End{Reason: session.Forbidden, Message: needRules}
	}
	return p.keepSecrets(client, node, reads != nil)
}

// keepSecrets makes a place the client's own, if it is not. With rules (ruled) that is whom they take the client for, also on
// a Unix socket.
func (p *Place) keepSecrets(client session.Peer, node *core.Node, ruled bool) *session.End {
	apart := p.Name != "" // else it has no node, and is in the default group with all that have none
	switch {
	case p.identity != "", !ruled && apart && client.Identity == "" && client.Local && p.key.has(config.WholeNode):
	case client.Identity != "":
		p.Name, p.identity = fmt.Sprintf("secrets of %q;%s", client.Identity, p.Name), client.Identity
	case client.Local:
		own, end := groupKey{config.WholeNode, parametersEntry}.of(client, node)
		if ruled {
			own = fmt.Sprintf("%q;%s", client.Principal, own)
		}
		p.Name, p.whole = "secrets of "+own, node.GetId() != ""
		return end
	default:
		return &session.End{Reason: session.Forbidden, Message: "secrets are served to clients with a verified certificate, or over loopback or a Unix socket, or whose rules say share: true; set downstream.tls.client_ca, or groups.secrets"}
	}
	return nil
}

// adviseRules says once what to write so that clients beyond this host are served secrets.
func (g *groups) adviseRules(end *session.End, client session.Peer, t cache.TypeURL) {
	if end.Message != needRules {
		return
	}
	g.needRules.Do(func() {
		g.log.Warn("clients beyond this host are refused Secrets, since no rules say who may read which: write a file of rules, and name it in authz.rules_file; or set groups.secrets: identity, with which every client that has a certificate is served any Secret that it names",
			"rules", rulesFor(client, t), "type", t, "identity", client.Identity)
	})
}

// rulesFor is a whole file of rules that allows a client what it was refused. The names in it are still to be written.
func rulesFor(client session.Peer, t cache.TypeURL) string {
	share := ""
	if client.Identity == "" { // there is nobody whose own it could be
		share = ", share: true"
	}
	return fmt.Sprintf(`rules: [{identity: %q, read: [{types: [LDS, CDS, RDS, EDS], names: ["*", "**"]}, {types: [%s], names: ["NAME"]%s}]}]`, cmp.Or(client.Identity, policy.Anonymous), t.Name(), share)
}
