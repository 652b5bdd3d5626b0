//! Conditions used outside the capture that created them.

use cuda_core::{Condition, DeviceBuffer, Function, Graph, Result, Stream};
use support::{kernels, refusal};

use super::{clean, device, primary};

fn decide(
    stream: &Stream,
    decides: &Function,
    value: &DeviceBuffer<u32>,
    condition: &Condition,
) -> Result<()> {
    // SAFETY: `decide(const u32 *x, condition)` reads one element, and sets the condition.
    unsafe { stream.kernel(decides).block(1).arg(value).arg(condition).launch() }
}

/// Captures a graph, and returns it with its condition, which one of its kernels sets.
fn graph_of(decides: &Function, value: &DeviceBuffer<u32>) -> Result<(Graph, Condition)> {
    let mut kept = None;
    let graph = Graph::capture(&primary(), |captured| {
        let once = Condition::new(captured, 1)?;
        decide(captured, decides, value, &once)?;
        once.if_then(captured, |_| Ok(()))?;
        kept = Some(once);
        Ok(())
    })?;
    Ok((graph, kept.expect("captured above")))
}

/// A kernel writes memory through the handle even of a graph that is gone or not running.
#[test]
fn s07_a_kernel_sets_no_condition_of_another_graph() {
    clean(|_session| {
        let stream = device().create_stream()?;
        let decides = kernels::conditions(&primary())?.function("decide")?;
        let value = stream.alloc_zeroed::<u32>(1)?;
        let (graph, condition) = graph_of(&decides, &value)?;
        let (other, others) = graph_of(&decides, &value)?;
        let says =
            |refused: String| assert!(refused.starts_with("a condition is set by"), "{refused}");
        says(refusal(decide(&stream, &decides, &value, &condition)));
        let capture = |condition: &Condition| {
            Graph::capture(&primary(), |captured| decide(captured, &decides, &value, condition))
        };
        says(refusal(capture(&condition)));
        // A graph that is captured beside another, and may be launched on its own.
        Graph::capture(&primary(), |captured| {
            let once = Condition::new(captured, 1)?;
            says(refusal(capture(&once)));
            // The body of another condition is a part of the graph.
            let outer = Condition::new(captured, 1)?;
            outer.if_then(captured, |body| decide(body, &decides, &value, &once))?;
            once.if_then(captured, |_| Ok(()))
        })?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        let mut launch = stream.kernel(&decides).block(1).arg(&value).arg(&others);
        // SAFETY: as in `decide`.
        says(refusal(unsafe { exec.set_kernel(node, &mut launch) }));
        drop((other, others));
        let mut launch = stream.kernel(&decides).block(1).arg(&value).arg(&condition);
        // SAFETY: as in `decide`.
        unsafe { exec.set_kernel(node, &mut launch) }?;
        exec.launch(&stream)?;
        // After an update, the other graph's conditions may be set.
        let (third, thirds) = graph_of(&decides, &value)?;
        exec.update(&third)?;
        for (condition, is_taken) in [(&condition, false), (&thirds, true)] {
            let mut launch = stream.kernel(&decides).block(1).arg(&value).arg(condition);
            // SAFETY: as in `decide`.
            let set = unsafe { exec.set_kernel(node, &mut launch) };
            if is_taken { set? } else { says(refusal(set)) }
        }
        drop((graph, condition));
        exec.launch(&stream)?;
        stream.synchronize()
    });
}

/// Its kernels set the conditions of the graph that it was updated to.
#[test]
fn s07_an_executable_keeps_the_graph_whose_conditions_it_sets() {
    clean(|session| {
        let stream = device().create_stream()?;
        let decides = kernels::conditions(&primary())?.function("decide")?;
        let value = stream.alloc_zeroed::<u32>(1)?;
        let (first, _) = graph_of(&decides, &value)?;
        let (mut second, _) = graph_of(&decides, &value)?;
        let mut exec = first.instantiate()?;
        exec.update(&second)?;
        // An extension that leaves a condition unused would destroy it.
        let extended = second.extend(|stream| Condition::new(stream, 0).map(drop));
        assert!(refusal(extended).starts_with("an executable uses the graph"));
        let before = session.calls("cuGraphDestroy");
        drop((first, second));
        assert_eq!(session.calls("cuGraphDestroy"), before);
        exec.launch(&stream)?;
        stream.synchronize()?;
        drop(exec);
        assert_eq!(session.calls("cuGraphDestroy"), before + 2);
        Ok(())
    });
}
