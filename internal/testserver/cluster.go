package testserver

import (
	"fmt"
	"strconv"
	"strings"
)

// slots is the number of hash slots of a cluster (cluster specification, "Key distribution model").
const slots = 16384

// Cluster is a Redis or Valkey cluster whose masters share all slots.
type Cluster struct {
	Masters  []*RedisServer
	Replicas []*RedisServer // of the first master first
	t        TB
}

// RedisCluster starts a cluster of masters, each with so many replicas, and returns when every node calls it healthy. A new
// cluster waits 2 s before it takes writes; that is fixed in the servers. A node that is away for longer than 2 s is voted
// failed, unless options.Config says another cluster-node-timeout.
func RedisCluster(t TB, masters, replicas int, options RedisOptions) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for i := range masters * (1 + replicas) {
		node := clusterNode(t, options)
		if i < masters {
			c.Masters = append(c.Masters, node)
		} else {
			c.Replicas = append(c.Replicas, node)
		}
	}
	for i, master := range c.Masters {
		first, last := i*slots/masters, (i+1)*slots/masters-1
		master.Must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		// Without epochs of their own, masters would settle by collisions whose slots are whose.
		master.Must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	nodes := c.Nodes()
	for _, node := range nodes[1:] {
		for _, other := range nodes {
			if other != node {
				node.Must("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.Port()), other.busPort())
			}
		}
	}
	c.awaitHealthy("cluster_known_nodes:"+strconv.Itoa(len(nodes)), "cluster_slots_assigned:16384")
	for i, replica := range c.Replicas {
		replica.primary = c.Masters[i/replicas]
		replica.Must("CLUSTER", "REPLICATE", replica.primary.NodeID())
	}
	for _, replica := range c.Replicas {
		replica.AwaitReplication()
	}
	c.awaitHealthy("cluster_state:ok", "cluster_slots_ok:16384")
	return c
}

func clusterNode(t TB, options RedisOptions) *RedisServer {
	t.Helper()
	options.Config = append([]string{
		"cluster-enabled yes",
		"cluster-config-file nodes.conf",
		"cluster-node-timeout 2000",
		fmt.Sprintf("cluster-port %d", freePort(t)),
	}, options.Config...)
	return Redis(t, options)
}

// Nodes are masters, then replicas.
func (c *Cluster) Nodes() []*RedisServer {
	return append(append([]*RedisServer(nil), c.Masters...), c.Replicas...)
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes() {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// Slot is the hash slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	slot, err := c.Masters[0].Must("CLUSTER", "KEYSLOT", key).AsInt64()
	if err != nil {
		c.t.Fatalf("CLUSTER KEYSLOT: %v", err)
	}
	return int(slot)
}

// MoveSlot hands a slot and its keys from one master to another, key by key while clients work, as resharding does.
func (c *Cluster) MoveSlot(slot int, from, to *RedisServer) {
	c.t.Helper()
	number := strconv.Itoa(slot)
	fromID, toID := from.NodeID(), to.NodeID()
	to.Must("CLUSTER", "SETSLOT", number, "IMPORTING", fromID)
	from.Must("CLUSTER", "SETSLOT", number, "MIGRATING", toID)
	for {
		keys, err := from.Must("CLUSTER", "GETKEYSINSLOT", number, "100").AsStrSlice()
		if err != nil {
			c.t.Fatalf("CLUSTER GETKEYSINSLOT: %v", err)
		}
		if len(keys) == 0 {
			break
		}
		migrate := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), "", "0", "5000"}
		if to.options.Password != "" {
			migrate = append(migrate, "AUTH", to.options.Password)
		}
		from.Must(append(append(migrate, "KEYS"), keys...)...)
	}
	// The new owner first: else a crash between the two leaves a slot that nobody owns.
	for _, node := range []*RedisServer{to, from} {
		node.Must("CLUSTER", "SETSLOT", number, "NODE", toID)
	}
}

// AwaitHealthy returns when every running node calls the cluster healthy.
func (c *Cluster) AwaitHealthy() {
	c.t.Helper()
	c.awaitHealthy("cluster_state:ok", "cluster_slots_ok:16384")
}

func (c *Cluster) awaitHealthy(lines ...string) {
	c.t.Helper()
	for _, node := range c.Nodes() {
		if !node.running() {
			continue
		}
		var last string
		await(c.t, startLimit, fmt.Sprintf("node %s reports %v", node.Addr(), lines), func() (bool, error) {
			text, err := node.Must("CLUSTER", "INFO").ToString()
			if err != nil {
				return false, err
			}
			last = text
			for _, line := range lines {
				if !strings.Contains(text, line+"\r\n") {
					return false, fmt.Errorf("it reports %q", last)
				}
			}
			return true, nil
		})
	}
}

// NodeID is the node's name in its cluster.
func (s *RedisServer) NodeID() string {
	s.t.Helper()
	id, err := s.Must("CLUSTER", "MYID").ToString()
	if err != nil {
		s.t.Fatalf("CLUSTER MYID on %s: %v", s.Addr(), err)
	}
	return id
}

func (s *RedisServer) busPort() string {
	for _, line := range s.options.Config {
		if port, ok := strings.CutPrefix(line, "cluster-port "); ok {
			return port
		}
	}
	return ""
}
