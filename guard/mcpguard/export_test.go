package mcpguard

// Held is how many bytes of large messages a proxy holds.
func (p *Proxy) Held() int64 { return p.bodies.Load() }
