use super::*;

/// All graphs of `n` nodes, without edges from a node to itself or with them.
fn all_graphs(n: usize) -> impl Iterator<Item = Vec<Vec<usize>>> {
    (0_u32..1 << (n * n)).map(move |bits| {
        let edge = |from: usize, to: usize| bits >> (from * n + to) & 1 != 0;
        (0..n).map(|from| (0..n).filter(|to| edge(from, *to)).collect()).collect()
    })
}

/// Whether there is a cycle without the nodes that `is_gone` accepts: nodes that wait for nobody
/// are removed until none is left.
fn has_cycle(graph: &[Vec<usize>], is_gone: impl Fn(usize) -> bool) -> bool {
    let mut gone: Vec<bool> = (0..graph.len()).map(is_gone).collect();
    loop {
        let ends = |node: &usize| !gone[*node] && graph[*node].iter().all(|to| gone[*to]);
        match (0..graph.len()).find(ends) {
            Some(node) => gone[node] = true,
            None => return gone.contains(&false),
        }
    }
}

#[test]
fn every_cycle_of_small_graphs_is_found() {
    for graph in (1..=4).flat_map(all_graphs) {
        let found = cycles(&graph, usize::MAX);
        for cycle in &found {
            for (nth, node) in cycle.iter().enumerate() {
                let next = cycle[(nth + 1) % cycle.len()];
                assert!(graph[*node].contains(&next), "{graph:?}: {cycle:?}");
                assert!(!cycle[..nth].contains(node), "{graph:?}: {cycle:?}");
            }
        }
        // Without the nodes of the cycles found, no cycle is left.
        let is_in_one = |node| found.iter().any(|cycle| cycle.contains(&node));
        assert!(!has_cycle(&graph, is_in_one), "{graph:?}: {found:?}");
        assert_eq!(found.is_empty(), !has_cycle(&graph, |_| false), "{graph:?}");
    }
}

#[test]
fn node_that_waits_for_one_other_is_in_one_cycle_at_most() {
    // 0 -> 1 -> 2 -> 0, 3 -> 1, 4 -> 4, 5 -> 6
    let graph = [vec![1], vec![2], vec![0], vec![1], vec![4], vec![6], vec![]];
    assert_eq!(cycles(&graph, usize::MAX), [vec![0, 1, 2], vec![4]]);
    assert_eq!(cycles(&graph, 1), [vec![0, 1, 2]]);
    assert!(cycles(&[], usize::MAX).is_empty());
}

#[test]
fn chain_prefers_nodes_that_wait() {
    let graph = [vec![1, 2], vec![], vec![3], vec![], vec![0]];
    assert_eq!(chain(&graph, 4, |_| false), [4, 0, 2, 3]);
    assert_eq!(chain(&graph, 4, |node| node == 0), [4, 0]);
    assert_eq!(chain(&graph, 1, |_| false), [1]);
    let cycle = [vec![1], vec![0]];
    assert_eq!(chain(&cycle, 0, |_| false), [0, 1]);
}

#[test]
fn chain_of_a_small_graph_ends() {
    for graph in (1..=4).flat_map(all_graphs) {
        for start in 0..graph.len() {
            let chain = chain(&graph, start, |_| false);
            assert!(chain.windows(2).all(|pair| graph[pair[0]].contains(&pair[1])));
            let last = chain[chain.len() - 1];
            let ends = graph[last].is_empty() || graph[last].iter().any(|to| chain.contains(to));
            assert!(ends, "{graph:?}: {chain:?}");
        }
    }
}
