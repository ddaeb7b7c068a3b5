//! Cycles and chains in a graph of threads that wait for each other.
//!
//! A graph lists for each node the nodes for which it waits. A node with several waits for all of
//! them, as a scope for its children, so every cycle is a deadlock of its members.

/// Returns cycles, each as its nodes in the order of the waits, `most` at most. Every node on a
/// cycle is in a returned one, or waits for one that is, unless `most` were found before.
pub(crate) fn cycles(graph: &[Vec<usize>], most: usize) -> Vec<Vec<usize>> {
    /// Place of a node on the current path.
    #[derive(Clone, Copy)]
    enum Mark {
        New,
        OnPath(usize),
        Done,
    }
    let mut marks = vec![Mark::New; graph.len()];
    let mut found = Vec::new();
    // The nodes of the path, each with the number of its edges that were followed.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..graph.len() {
        if !matches!(marks[start], Mark::New) {
            continue;
        }
        marks[start] = Mark::OnPath(0);
        path.push((start, 0));
        while let Some((node, followed)) = path.last_mut() {
            let Some(&next) = graph[*node].get(*followed) else {
                marks[*node] = Mark::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match marks[next] {
                Mark::New => {
                    marks[next] = Mark::OnPath(path.len());
                    path.push((next, 0));
                }
                Mark::OnPath(at) => {
                    found.push(path[at..].iter().map(|(node, _)| *node).collect());
                    if found.len() == most {
                        return found;
                    }
                }
                Mark::Done => {}
            }
        }
    }
    found
}

/// Returns the chain that begins at `start`: each node waits for the next one. Where a node waits
/// for several, the chain follows one that waits itself. It ends at a node that does not wait, or
/// at the first one that `is_end` accepts, or before a node that is in it already.
pub(crate) fn chain(
    graph: &[Vec<usize>],
    start: usize,
    is_end: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut chain = vec![start];
    let mut seen = std::collections::HashSet::from([start]);
    let mut at = start;
    while !is_end(at) {
        let waits_itself = |node: &&usize| !graph[**node].is_empty();
        let all = &graph[at];
        let Some(&next) = all.iter().find(waits_itself).or_else(|| all.first()) else { break };
        if !seen.insert(next) {
            break;
        }
        chain.push(next);
        at = next;
    }
    chain
}

#[cfg(test)]
mod tests;
