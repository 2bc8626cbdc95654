package twin

import (
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Responses with a fault must be NACKed (ERR-10). What is sound in one counts. The name that is faulty may
// exist or not; where the fault hides the name, that goes for every name of the type. The control plane
// hears the NACK, and sends all of it once more.

// What is wrong with the first resource of a response, by number.
const (
	faultRepeats  = iota - 2 // it is listed once more, as it is: all of it counts (ERR-11)
	noFault                  // nothing
	faultTwice               // it is listed once more, with other content
	faultBoth                // it is listed among those that are gone, too
	faultType                // its body is of another type
	faultNameless            // it has no name
	faultKinds
)

// faulty puts a fault into a response. It returns what is sound in it, and the name that is in doubt,
// "" if the fault hides it. ok is false if there is nothing to spoil.
func faulty(resp *discovery.DeltaDiscoveryResponse, fault int) (sound *discovery.DeltaDiscoveryResponse, name string, ok bool) {
	i := slices.IndexFunc(resp.GetResources(), func(r *discovery.Resource) bool { return r.GetResource() != nil })
	if i < 0 {
		return nil, "", false
	}
	r := resp.Resources[i]
	name = r.GetName()
	sound = proto.Clone(resp).(*discovery.DeltaDiscoveryResponse)
	sound.Resources = slices.Delete(sound.Resources, i, i+1)
	switch other := proto.Clone(r).(*discovery.Resource); fault {
	case faultTwice:
		other.Resource.Value = append([]byte("not "), r.Resource.Value...)
		resp.Resources = append(resp.Resources, other)
	case faultBoth:
		resp.RemovedResources = append(resp.RemovedResources, name)
	case faultType:
		resp.Resources[i] = other
		other.Resource.TypeUrl = "type.googleapis.com/test.Other"
	case faultNameless:
		resp.Resources[i] = other
		other.Name, name = "", ""
	}
	return sound, name, true
}

// spoilt are a faulty name and what its resources list, each of which has its answer in them, and exists. None: the
// fault hides it.
func spoilt(said proto.Message, name string) (names []string) {
	if resp, delta := said.(*discovery.DeltaDiscoveryResponse); delta && name != "" {
		names = []string{name}
		for _, r := range resp.GetResources() {
			if r.GetName() == name {
				names = append(names, r.GetAliases()...)
			}
		}
	}
	return names
}

// keeps notes that of a response only what is sound was taken: the others keep the aliases from before, and
// the server says so if they have lost one (ERR-10, NAME-5).
func (l *serverLane) keeps(before map[string][]string, sound *discovery.DeltaDiscoveryResponse) {
	for name, aliases := range before {
		if !slices.ContainsFunc(sound.GetResources(), func(r *discovery.Resource) bool { return r.GetName() == name }) {
			l.as[name] = aliases
		}
	}
}

// unreadable puts a body into a SotW response that cannot be read, in place of its first
// one.
func unreadable(resp *discovery.DiscoveryResponse) {
	resp.Resources[0] = &anypb.Any{TypeUrl: "type.googleapis.com/envoy.service.discovery.v3.Resource", Value: []byte{0xff}}
}
