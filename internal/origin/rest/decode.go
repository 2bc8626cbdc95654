package rest

import (
	"errors"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/xdsjson"
)

// decoded is what an answer holds.
type decoded struct {
	version   string
	resources map[string]*cache.Resource
}

// decode reads the body of a 200. One mistake refuses it all (REST-16).
func (o *Options) decode(t cache.TypeURL, body []byte) (*decoded, error) {
	resp, m := xdsjson.ReadResponse(body, o.MaxBytes, o.Messages)
	switch {
	case m != nil && m.TooLarge:
		return nil, fmt.Errorf("%w; see upstream.max_receive_bytes", m)
	case m != nil:
		return nil, m
	case resp.GetTypeUrl() != "" && resp.GetTypeUrl() != string(t):
		return nil, fmt.Errorf("is of type %q, and %q was asked for", resp.GetTypeUrl(), string(t))
	}
	d := &decoded{version: resp.GetVersionInfo(), resources: make(map[string]*cache.Resource, len(resp.GetResources()))}
	for i, a := range resp.GetResources() {
		r, err := unwrap(t, a)
		if err != nil {
			return nil, fmt.Errorf("resources[%d] %w", i, err)
		}
		made := cache.NewResource(t, r, o.Fingerprint)
		if cache.IsGlob(made.Name) {
			return nil, fmt.Errorf("resources[%d]: %q is a glob, and no resource has such a name", i, made.Name)
		}
		if d.resources[made.Name] != nil {
			return nil, fmt.Errorf("resources[%d]: %q is listed twice", i, made.Name)
		}
		d.resources[made.Name] = made
	}
	return d, nil
}

// wrapper is the type of a resource that comes with a name of its own (TRANSLATE-3).
const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// unwrap is a resource as a Delta response has it.
func unwrap(t cache.TypeURL, body *anypb.Any) (*discovery.Resource, error) {
	r := &discovery.Resource{Resource: body}
	if body.GetTypeUrl() == wrapper {
		r.Reset()
		if err := proto.Unmarshal(body.GetValue(), r); err != nil {
			return nil, errors.New("is a Resource that cannot be read")
		}
	}
	switch of := r.GetResource().GetTypeUrl(); {
	case r.GetTtl() != nil:
		return nil, errors.New("has a ttl, which an unchanged answer would not renew; remove it")
	case len(r.GetAliases()) > 0:
		return nil, errors.New("has aliases, which are not answered to over REST; list it under each name")
	case of != string(t):
		return nil, fmt.Errorf("is of type %q, and %q was asked for", of, string(t))
	}
	if _, ok := cache.NameOf(r); ok {
		return r, nil
	}
	name, ok := cache.BodyName(t, r.GetResource().GetValue())
	if !ok || r.GetResourceName() != nil {
		return nil, fmt.Errorf("has no name; give it one, or wrap it as %s with a name", wrapper)
	}
	r.Name = name
	return r, nil
}
