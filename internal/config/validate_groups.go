package config

import (
	"fmt"
	"slices"
	"strings"
)

// keyEntries are the entries of a group key that take no argument, keyPrefixes
// those that do, with what is asked of it.
var (
	keyEntries = []string{
		"id", "cluster", "locality.region", "locality.zone", "locality.sub_zone", "user_agent_name", "user_agent_version",
		"client_features", "dynamic_parameters", WholeNode, "identity",
	}
	keyPrefixes = []struct{ prefix, example string }{
		{"metadata.", "metadata.team or metadata.labels.app"},
		{"constant.", "constant.blue"},
	}
)

func (v *validator) groups() {
	g := &v.c.Groups
	v.groupKey("groups.key", g.Key)
	seen := map[string]int{}
	for i, t := range g.Types {
		at := fmt.Sprintf("groups.types[%d]", i)
		if url, ok := v.typeName(at+".type_url", t.TypeURL); ok {
			if first, dup := seen[url]; dup {
				v.fail(at+".type_url", "merge the two entries", "%q is the same type as groups.types[%d]", clip(t.TypeURL), first)
			} else {
				seen[url] = i
			}
		}
		v.groupKey(at+".key", t.Key)
	}
	v.typeNames("groups.unmultiplexable_types", g.UnmultiplexableTypes)
	v.positive("groups.max", int64(g.Max))
	v.passthrough()
	v.secrets()
	v.sendIdentity()
}

// secrets: the older spelling must not say something else.
func (v *validator) secrets() {
	g := &v.c.Groups
	if g.ShareSecrets && g.EffectiveSecrets() != SecretsShared {
		v.fail("groups.share_secrets", "remove it, or set groups.secrets to shared", "contradicts groups.secrets: %s", g.Secrets)
	}
}

// ClientIdentity is the key under which the control plane finds the identity of a group's clients in the
// metadata of its node (NODE-6).
const ClientIdentity = "xds-relay.client_identity"

// sendIdentity: there must be identities to send.
func (v *validator) sendIdentity() {
	const key = "groups.send_identity"
	if _, ok := v.c.Upstream.Node.Metadata[ClientIdentity]; ok {
		v.fail("upstream.node.metadata", "remove it; groups.send_identity sets it for each group", "%q is the identity of clients, not the relay's", ClientIdentity)
	}
	switch {
	case !v.c.Groups.SendIdentity:
	case !v.c.Downstream.TLS.AsksClients():
		v.fail(key, "set downstream.tls.client_ca", "needs clients that prove who they are")
	case v.c.Groups.EffectiveSecrets() == SecretsShared && !v.keysHave("identity"):
		v.fail(key, "add identity to groups.key, or set groups.secrets to policy or identity", "has no effect: no group is of one identity's clients alone")
	}
}

// keysHave reports whether an entry is in one of the keys in use.
func (v *validator) keysHave(entry string) bool {
	return slices.ContainsFunc(v.c.keys(), func(key []string) bool { return slices.Contains(key, entry) })
}

func (v *validator) groupKey(at string, entries []string) {
	for i, entry := range entries {
		key := fmt.Sprintf("%s[%d]", at, i)
		switch known, problem, hint := keyEntry(entry); {
		case problem != "":
			v.fail(key, hint, "%q %s", clip(entry), problem)
		case !known:
			v.fail(key, "use "+strings.Join(keyEntries, ", ")+", metadata.<path> or constant.<text>", "unknown node field %q", clip(entry))
		case slices.Contains(entries[:i], entry):
			v.fail(key, "", "%q is listed twice", clip(entry))
		case entry == "identity" && !v.c.Downstream.TLS.AsksClients():
			v.fail(key, "set downstream.tls.client_ca", "needs clients that prove who they are")
		}
	}
}

// keyEntry reports whether an entry of a key is known, and what is wrong with the
// argument of one that takes any.
func keyEntry(entry string) (known bool, problem, hint string) {
	for _, p := range keyPrefixes {
		if argument, ok := strings.CutPrefix(entry, p.prefix); ok {
			if slices.Contains(strings.Split(argument, "."), "") {
				return true, "has an empty step", "for example " + p.example
			}
			return true, "", ""
		}
	}
	return slices.Contains(keyEntries, entry), "", ""
}

// passthrough: a client's node may stand for a group only if it is the group's key,
// or it would depend on who comes first (NODE-7); and nothing can stand for the
// relay's own wish (ERR-14).
func (v *validator) passthrough() {
	if v.c.EffectiveNodeMode() != NodeModePassthrough {
		return
	}
	for _, key := range v.c.keys() {
		if !slices.Contains(key, WholeNode) {
			v.fail("upstream.node_mode", "add node to groups.key and to every key of groups.types, or use template", "passthrough sends a client's node, so that every group key must hold it")
			break
		}
	}
	if len(v.c.Downstream.ReadyTypes) > 0 {
		v.fail("downstream.ready_types", "leave it out, or use another upstream.node_mode", "the relay has no node of its own to ask with when upstream.node_mode is passthrough")
	}
}
