package xdstest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// Dialogue is what a client remembers of one stream: it turns commands into requests and responses into events. It is pure,
// so every player can use it. Nothing in it survives the stream. It also holds the relay to what must be true of
// every response; what Hear returns as an error is a fault of the relay that no transcript has to mention.
type Dialogue struct {
	SotW bool
	V2   bool         // the transport is that of the v2 API
	Node *corev3.Node // sent with the first request; nil sends none
	Show []string     // fields of a response to print: nonce, version, id

	spoken bool
	fault  error // of the words of the node
	types  map[string]*topic
	nonces map[string]bool
	labels map[string]string // versions seen on this stream, to what their bodies said
}

// topic is the dialogue about one type.
type topic struct {
	nonces   []string // of the responses, in order
	version  string   // of the last SotW response
	accepted string   // of the last SotW response that was not rejected
	names    []string // of the last SotW request
}

// NewDialogue starts the dialogue that an open command describes. The node's id is the actor's name unless it says otherwise.
func NewDialogue(actor string, open Command, t *Transcript) *Dialogue {
	d := &Dialogue{SotW: open.Variant == "sotw", V2: open.V2()}
	if t != nil {
		d.Show = t.Show
	}
	if _, without := open.Options["nonode"]; without {
		return d
	}
	d.Node, d.fault = nodeOf(actor, open)
	return d
}

func (d *Dialogue) topic(typeURL string) *topic {
	if d.types == nil {
		d.types = map[string]*topic{}
	}
	if d.types[typeURL] == nil {
		d.types[typeURL] = &topic{}
	}
	return d.types[typeURL]
}

// Request is the message that a sub, req, ack, nack or empty-type command stands for.
func (d *Dialogue) Request(c Command) (proto.Message, error) {
	if c.Verb == "sub" && d.SotW || c.Verb == "req" && !d.SotW {
		return nil, fmt.Errorf("%s is for the other variant: say sub on Delta streams, req on SotW streams", c.Verb)
	}
	t := d.topic(c.TypeURL)
	nonce, err := t.nonce(c)
	if err != nil {
		return nil, err
	}
	node, err := d.Node, d.fault
	if d.spoken {
		node, err = repeated(c)
	}
	if err != nil {
		return nil, err
	}
	locators, err := wordList(c.Options["loc"])
	if err != nil {
		return nil, err
	}
	d.spoken = true
	if d.SotW {
		req := d.sotw(c, t, node, nonce)
		for _, name := range locators {
			req.ResourceLocators = append(req.ResourceLocators, &discoveryv3.ResourceLocator{Name: name})
		}
		return req, nil
	}
	req := &discoveryv3.DeltaDiscoveryRequest{
		Node: node, TypeUrl: c.TypeURL, ResponseNonce: nonce, ResourceNamesSubscribe: c.Names, ResourceNamesUnsubscribe: c.Minus,
	}
	for _, name := range locators {
		req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, &discoveryv3.ResourceLocator{Name: name})
	}
	for _, r := range c.Init {
		if req.InitialResourceVersions == nil {
			req.InitialResourceVersions = map[string]string{}
		}
		version := r.Version
		if !r.Literal {
			if version, err = r.fingerprint(c.TypeURL); err != nil {
				return nil, err
			}
		}
		req.InitialResourceVersions[r.Name] = version
	}
	if failure, ok := c.failure(); ok {
		req.ErrorDetail = failure.proto()
	}
	return req, nil
}

// repeated is the node of a later request, if it has one: node= begins a whole
// node.
func repeated(c Command) (*corev3.Node, error) {
	if _, ok := c.Options["node"]; !ok {
		return nil, nil
	}
	return nodeOf("", c)
}

func (d *Dialogue) sotw(c Command, t *topic, node *corev3.Node, nonce string) *discoveryv3.DiscoveryRequest {
	if c.Verb == "req" || c.Verb == "empty-type" {
		t.names = c.Names
	}
	failure, failed := c.failure()
	if !failed && len(t.nonces) > 0 && nonce == t.nonces[len(t.nonces)-1] {
		t.accepted = t.version
	}
	req := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: c.TypeURL, ResponseNonce: nonce, ResourceNames: t.names, VersionInfo: t.accepted}
	if version, ok := c.Options["version"]; ok {
		req.VersionInfo = version
	}
	if failed {
		req.ErrorDetail = failure.proto()
	}
	return req
}

// nonce is the nonce that a command sends: the one it names, else that of the last response if the command
// answers one.
func (t *topic) nonce(c Command) (string, error) {
	said, ok := c.Options["nonce"]
	answers := c.Verb == "ack" || c.Verb == "nack"
	if !ok && (answers || c.Verb == "req" && len(t.nonces) > 0) {
		said = "#last"
	}
	which, ok := strings.CutPrefix(said, "#")
	if !ok {
		return said, nil
	}
	n, err := strconv.Atoi(which)
	if which == "last" {
		n, err = len(t.nonces), nil
	}
	if err != nil || n < 1 || n > len(t.nonces) {
		return "", fmt.Errorf("%s: there is no response %s of %s on this stream, it has had %d", c.Verb, said, ShortName(c.TypeURL), len(t.nonces))
	}
	return t.nonces[n-1], nil
}

// Hear turns a response into the text of an event. The error says what is wrong with the response, if anything is.
func (d *Dialogue) Hear(m proto.Message) (text string, fault error) {
	var typeURL, nonce, version, id, chunks string
	var resources []Resource
	var removed []string
	var errors []*discoveryv3.ResourceError
	blame := func(err error) {
		if fault == nil {
			fault = err
		}
	}
	switch resp := m.(type) {
	case *discoveryv3.DeltaDiscoveryResponse:
		typeURL, nonce, version, id = resp.GetTypeUrl(), resp.GetNonce(), resp.GetSystemVersionInfo(), resp.GetControlPlane().GetIdentifier()
		removed, errors = resp.GetRemovedResources(), resp.GetResourceErrors()
		for _, w := range resp.GetResources() {
			r, err := d.resource(typeURL, w, true)
			blame(err)
			resources = append(resources, r)
		}
		if len(resp.GetRemovedResourceNames()) > 0 {
			blame(fmt.Errorf("removed_resource_names is set: %v", resp.GetRemovedResourceNames()))
		}
		if i := strings.LastIndexByte(nonce, '-'); i >= 0 {
			if n, err := strconv.Atoi(nonce[i+1:]); err == nil && n > 0 {
				chunks = strconv.Itoa(n)
			}
		}
	case *discoveryv3.DiscoveryResponse:
		typeURL, nonce, version, id = resp.GetTypeUrl(), resp.GetNonce(), resp.GetVersionInfo(), resp.GetControlPlane().GetIdentifier()
		errors = resp.GetResourceErrors()
		for _, body := range resp.GetResources() {
			w := &discoveryv3.Resource{Resource: body}
			if body.MessageIs(w) {
				w = &discoveryv3.Resource{}
				blame(body.UnmarshalTo(w))
				if !slices.ContainsFunc(d.Node.GetClientFeatures(), func(f string) bool { return strings.HasSuffix(f, "resource-in-sotw") }) {
					blame(fmt.Errorf("a resource is wrapped for a client that cannot unwrap it (DOWN-SOTW-15)"))
				}
			}
			r, err := d.resource(typeURL, w, false)
			blame(err)
			resources = append(resources, r)
		}
		if version == "" {
			blame(fmt.Errorf("version_info is empty (DOWN-SOTW-11)"))
		}
		d.topic(typeURL).version = version
	}
	limited := slices.ContainsFunc(resources, func(r Resource) bool { return r.TTL != 0 })
	if newer := limited || len(errors) > 0; newer && d.V2 {
		blame(fmt.Errorf("a v2 client is sent TTLs or errors (V2-3)"))
	}
	blame(d.checkNonce(nonce))
	blame(checkOnce(resources, removed))
	t := d.topic(typeURL)
	t.nonces = append(t.nonces, nonce)

	words := []string{"resp", ShortName(typeURL)}
	for _, field := range []struct{ key, value string }{{"nonce", nonce}, {"version", version}, {"id", id}} {
		if slices.Contains(d.Show, field.key) {
			words = append(words, field.key+"="+quote(field.value))
		}
	}
	if chunks != "" {
		words = append(words, "chunks="+chunks)
	}
	text = strings.Join(append(words, contents(resources, removed, errors)...), " ")
	if fault != nil {
		fault = fmt.Errorf("%s: %w", text, fault)
	}
	return text, fault
}

// resource reads one resource of a response; versioned ones must carry the fingerprint of their body.
func (d *Dialogue) resource(typeURL string, w *discoveryv3.Resource, versioned bool) (Resource, error) {
	r := Resource{Aliases: w.GetAliases(), NoCache: w.GetCacheControl().GetDoNotCache(), TTL: w.GetTtl().AsDuration(), Bodyless: w.GetResource() == nil}
	if w.GetResourceName() != nil {
		r.Qualified = 1
	}
	if r.Bodyless {
		r.Name = w.GetName() + w.GetResourceName().GetName()
		if w.GetVersion() != "" {
			r.Version = "?"
			if label, ok := d.labels[w.GetVersion()]; ok {
				r.Version = label
			}
		}
		return r, nil
	}
	if !r.readBody(w.GetResource()) {
		r.Label = "?"
	}
	if name := w.GetName() + w.GetResourceName().GetName(); name != "" {
		r.Name = name
	}
	if url := w.GetResource().GetTypeUrl(); url != typeURL {
		r.TypeURL = url
	}
	r.Version = r.Label
	if !versioned {
		return r, nil
	}
	return r, d.checkVersion(w, r)
}

func (d *Dialogue) checkVersion(w *discoveryv3.Resource, r Resource) error {
	want, err := fingerprint(w.GetResource(), w.GetAliases())
	if err != nil {
		return err
	}
	if w.GetVersion() != want {
		return fmt.Errorf("resource %s has version %q, the fingerprint of its body is %q (RECON-1)", r.Name, w.GetVersion(), want)
	}
	if d.labels == nil {
		d.labels = map[string]string{}
	}
	d.labels[want] = r.Label
	return nil
}

func (d *Dialogue) checkNonce(nonce string) error {
	if nonce == "" || d.nonces[nonce] {
		return fmt.Errorf("nonce %q is empty or was used before on this stream (DOWN-DELTA-3)", nonce)
	}
	if d.nonces == nil {
		d.nonces = map[string]bool{}
	}
	d.nonces[nonce] = true
	return nil
}

func checkOnce(resources []Resource, removed []string) error {
	seen := map[string]bool{}
	for _, r := range resources {
		if seen[r.Name] {
			return fmt.Errorf("resource %s comes twice (DOWN-DELTA-12)", r.Name)
		}
		seen[r.Name] = true
	}
	for _, name := range removed {
		if seen[name] {
			return fmt.Errorf("removed resource %s is named twice (DOWN-DELTA-12)", name)
		}
		seen[name] = true
	}
	return nil
}
