package sandbox

// Layers are the layers of an isolated launch that Without leaves out, and
// MediatedLayers those of any launch with namespaces.
var (
	Layers         = []string{layerRoot, layerShield, layerLandlock, layerSeccomp, layerNetwork, layerPrivileges, layerKeyring, layerLimits}
	MediatedLayers = []string{layerRoot, layerShield, layerSeccomp, layerNetwork, layerCgroups}
)

// GroupLimits is the layer by which the limits of the control group would be tried at their real
// values: as if they did not hold at those of the try.
const GroupLimits = layerGroupLimits

// ProcessLimits is that of the limits of each process.
const ProcessLimits = layerLimits

// Without returns s with one layer left out. Only the tests of this room can: the
// program has no switch that weakens a launch.
func Without(s Spec, layer string) Spec {
	s.off = append(s.off, layer)
	return s
}

// Ungroup makes p one that has no control group. What it had is closed by the returned
// function.
func Ungroup(p *Process) (end func() error) {
	g := p.half.group
	p.half.group = nil
	if g == nil {
		return func() error { return nil }
	}
	return g.Close
}
