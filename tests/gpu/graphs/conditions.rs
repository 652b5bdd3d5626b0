//! Parts of graphs that run if, or while, kernels set a condition.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_core::jit::{LinkInput, Linker};
use cuda_core::nvrtc::Program;
use cuda_core::{
    Access, Condition, DeviceBuffer, Error, Event, EventFlags, Function, Graph, InnerGraph, Module,
    PinnedBuffer, Result, Stream, sys,
};
use support::{gpu_test, kernels, one_stream, refusal, two_streams};

use super::{add_one, not_captured};

/// Subtracts one from `left`, and sets the condition to what remains.
fn count_down(
    stream: &Stream,
    function: &Function,
    left: &mut DeviceBuffer<u32>,
    condition: &Condition,
) -> Result<()> {
    // SAFETY: `count_down(u32 *x, condition)` reads and writes one element.
    unsafe { stream.kernel(function).block(1).arg(left).arg(condition).launch() }
}

/// Sets the condition to `value[0]`.
fn decide(
    stream: &Stream,
    function: &Function,
    value: &DeviceBuffer<u32>,
    condition: &Condition,
) -> Result<()> {
    // SAFETY: `decide(const u32 *x, condition)` reads one element.
    unsafe { stream.kernel(function).block(1).arg(value).arg(condition).launch() }
}

gpu_test! {
    needs 1, cuda_12_4, cudadevrt;
    fn l_a_loop_runs_until_a_kernel_ends_it() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let one = kernels::get(&context, "add_one")?;
        let down = kernels::conditions(&context)?.function("count_down")?;
        let mut left = stream.alloc::<u32>(1)?;
        let mut rounds = stream.alloc_zeroed::<u32>(100)?;
        let mut host = PinnedBuffer::<u32>::new(&context, 100)?;
        let graph = Graph::capture(&context, |stream| {
            let go_on = Condition::new(stream, 1)?;
            stream.fill(&mut left, 5)?;
            go_on.while_loop(stream, |body| {
                add_one(body, &one, &mut rounds)?;
                count_down(body, &down, &mut left, &go_on)
            })?;
            stream.download(&rounds, &mut host)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (3, 2));
        assert_eq!(graph.nodes()?[1].kind(), sys::CU_GRAPH_NODE_TYPE_CONDITIONAL);
        let mut exec = graph.instantiate()?;
        // The executable keeps and orders what the body uses.
        drop((graph, one, down, left));
        for launch in 1..=3 {
            exec.lend_mut(&mut host).launch(&stream)?;
            assert_eq!(host.as_slice()?, [5 * launch; 100]);
            assert_eq!(other.download_vec(&rounds)?, [5 * launch; 100]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4, real, nvrtc, cudadevrt;
    fn l_a_condition_of_compiled_code() -> Result<()> {
        const SOURCE: &str = r#"
            extern "C" __device__ void cudaGraphSetConditional(unsigned long long, unsigned int);
            extern "C" __global__ void double_until(unsigned *x, unsigned most, unsigned long long go_on) {
                *x *= 2;
                cudaGraphSetConditional(go_on, *x < most);
            }"#;
        let (context, stream) = one_stream()?;
        let cubin = Program::new(SOURCE).device(context.device())?.option("-rdc=true").compile_cubin()?;
        let mut linker = Linker::new(&context)?;
        let archive = std::env::var_os("CUDA_TESTS_LIBCUDADEVRT").expect("the runner names it");
        linker.add_cubin(&cubin)?;
        // SAFETY: the file is an archive of the toolkit.
        unsafe { linker.add_file(LinkInput::Library, archive) }?;
        let double = Module::from_cubin(&context, &linker.complete()?)?.function("double_until")?;
        let mut x = stream.alloc::<u32>(1)?;
        stream.fill(&mut x, 1)?;
        let graph = Graph::capture(&context, |stream| {
            let go_on = Condition::new(stream, 1)?;
            go_on.while_loop(stream, |body| {
                // SAFETY: the kernel reads and writes one element.
                unsafe { body.kernel(&double).block(1).arg(&mut x).arg(1000u32).arg(&go_on).launch() }
            })
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1024]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4, cudadevrt;
    fn l_what_runs_on_a_condition_is_ordered_by_access() -> Result<()> {
        let (context, stream) = one_stream()?;
        let one = kernels::get(&context, "add_one")?;
        let decides = kernels::conditions(&context)?.function("decide")?;
        let value = &mut stream.alloc_zeroed::<u32>(1)?;
        let [mut x, mut y, mut z] =
            [stream.alloc_zeroed::<u32>(50)?, stream.alloc_zeroed::<u32>(50)?, stream.alloc_zeroed::<u32>(50)?];
        let graph = Graph::build(&context, |builder| {
            let is_set = builder.condition(0)?;
            builder.add(|stream| add_one(stream, &one, &mut z))?; // beside all the others
            builder.add(|stream| stream.fill(&mut x, 7))?;
            builder.add(|stream| decide(stream, &decides, value, &is_set))?;
            let then = builder.add(|stream| {
                is_set.if_then(stream, |body| {
                    add_one(body, &one, &mut x)?;
                    stream_copies(body, &x, &mut y)
                })
            })?;
            builder.add_after(&[then], |_| Ok(()))?;
            builder.add(|stream| add_one(stream, &one, &mut y))?;
            Ok(())
        })?;
        // The node is behind the fill and the decision, and before the empty node and the last kernel.
        assert_eq!((graph.node_count()?, graph.edge_count()?), (6, 4));
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!((stream.download_vec(&x)?, stream.download_vec(&y)?), (vec![7; 50], vec![1; 50]));
        stream.fill(value, 3)?;
        exec.launch(&stream)?;
        assert_eq!((stream.download_vec(&x)?, stream.download_vec(&y)?), (vec![8; 50], vec![9; 50]));
        assert_eq!(stream.download_vec(&z)?, [2; 50]);
        Ok(())
    }
}

fn stream_copies(stream: &Stream, x: &DeviceBuffer<u32>, y: &mut DeviceBuffer<u32>) -> Result<()> {
    stream.copy(x, y)
}

gpu_test! {
    needs 1, cuda_12_8, cudadevrt;
    fn l_one_of_several_bodies_runs() -> Result<()> {
        let (context, stream) = one_stream()?;
        let decides = kernels::conditions(&context)?.function("decide")?;
        let mut value = stream.alloc_zeroed::<u32>(1)?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(9)?, stream.alloc_zeroed::<u32>(9)?);
        let graph = Graph::capture(&context, |stream| {
            let (kind, is_set) = (Condition::new(stream, 0)?, Condition::new(stream, 0)?);
            decide(stream, &decides, &value, &kind)?;
            decide(stream, &decides, &value, &is_set)?;
            kind.switch(stream, 3, |kind, body| body.fill(&mut x, 10 * kind))?;
            is_set.if_else(stream, |is_set, body| body.fill(&mut y, 1 + u32::from(is_set)))
        })?;
        let mut exec = graph.instantiate()?;
        for (set, kept, or_else) in [(0, 0, 1), (2, 20, 2), (1, 10, 2), (3, 10, 2)] {
            stream.fill(&mut value, set)?;
            exec.launch(&stream)?;
            assert_eq!((stream.download_vec(&x)?, stream.download_vec(&y)?), (vec![kept; 9], vec![or_else; 9]));
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4, cudadevrt;
    fn l_conditions_in_bodies() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels::conditions(&context)?;
        let (down, decides) = (module.function("count_down")?, module.function("decide")?);
        let one = kernels::get(&context, "add_one")?;
        let (mut left, mut inner) = (stream.alloc::<u32>(1)?, stream.alloc::<u32>(1)?);
        let mut x = stream.alloc_zeroed::<u32>(30)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut left, 3)?;
            let (go_on, again) = (Condition::new(stream, 1)?, Condition::new(stream, 0)?);
            go_on.while_loop(stream, |body| {
                stream_copies(body, &left, &mut inner)?;
                decide(body, &decides, &inner, &again)?;
                again.while_loop(body, |body| {
                    add_one(body, &one, &mut x)?;
                    count_down(body, &down, &mut inner, &again)
                })?;
                count_down(body, &down, &mut left, &go_on)
            })
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [3 + 2 + 1; 30]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_graphs_inside_nodes_are_walked() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let mut y = stream.alloc_zeroed::<u32>(20)?;
        let step = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.copy(&x, y.slice_mut(..10)?)
        })?;
        let mut graph = Graph::capture(&context, |stream| {
            step.include(stream)?;
            let (outer, inner) = (Condition::new(stream, 1)?, Condition::new(stream, 1)?);
            outer.if_then(stream, |body| {
                body.fill(&mut y, 2)?;
                inner.if_then(body, |body| body.fill(&mut x, 3))
            })
        })?;
        drop(step);
        let empty = Graph::capture(&context, |_| Ok(()))?;
        assert!(empty.nodes()?.is_empty() && empty.edges()?.is_empty());
        let shown = |graph: &InnerGraph<'_>| -> Result<Vec<String>> {
            assert_eq!((graph.node_count()?, graph.edge_count()?), (2, 1));
            assert_eq!(graph.edges()?, [(0, 1)]);
            Ok(graph.nodes()?.iter().map(ToString::to_string).collect())
        };
        let nodes = graph.nodes()?;
        let [child] = nodes[0].graphs()?[..] else { panic!("one child") };
        assert_eq!(shown(&child)?, ["fill of 40 bytes", "copy of 40 bytes"]);
        let [body] = nodes[1].graphs()?[..] else { panic!("one body") };
        assert_eq!(shown(&body)?, ["fill of 80 bytes", "conditional node"]);
        let [innermost] = body.nodes()?[1].graphs()?[..] else { panic!("a body in a body") };
        let fill = innermost.nodes()?[0];
        assert_eq!(fill.to_string(), "fill of 40 bytes");
        assert!(fill.graphs()?.is_empty());
        let picture = graph.to_svg()?;
        assert_eq!(picture.matches("<rect x").count(), 7 + 1, "each node once, and a stream: {picture}");
        for caption in ["[1] inside: graph", "[2] inside: conditional node", "[3] inside: conditional node"] {
            assert!(picture.contains(&format!(">{caption}</text>")), "{picture}");
        }
        // Nodes of a body are not nodes of the graph.
        let (id, mut exec) = (fill.id(), graph.instantiate()?);
        assert!(refusal(exec.set_fill(id, &mut x, 4)).contains("cannot be changed by itself"));
        drop(exec);
        // Bodies of added nodes are known, too.
        graph.extend(|stream| Condition::new(stream, 1)?.if_then(stream, |body| body.fill(&mut x, 5)))?;
        assert_eq!(graph.nodes()?[2].graphs()?[0].node_count()?, 1);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_conditions_are_checked() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let step = Graph::capture(&context, |stream| stream.launch_host_func_each(|| ()))?;
        let event = Arc::new(Event::new(&context, EventFlags::DISABLE_TIMING)?);
        let records = Graph::capture(&context, |stream| event.record_each(stream))?;
        let fill = Graph::capture(&context, |stream| stream.fill(&mut x, 4))?;
        let refused = refusal(Condition::new(&stream, 0));
        assert!(refused.ends_with("not captured: use the one that `Graph::capture` passes"), "{refused}");
        let mut kept = None;
        let graph = Graph::capture(&context, |captured| {
            let once = Condition::new(captured, 1)?;
            assert!(refusal(once.if_then(&stream, |_| Ok(()))).contains("not captured"));
            once.if_then(captured, |body| {
                not_captured(body.launch_host_func_each(|| ()), "cuLaunchHostFunc");
                not_captured(step.include(body), "cuGraphAddChildGraphNode");
                not_captured(records.include(body), "cuGraphAddChildGraphNode");
                not_captured(body.synchronize(), "cuStreamSynchronize");
                fill.include(body)
            })?;
            let again = once.if_then(captured, |_| Ok(()));
            assert!(refusal(again).contains("depends on the condition already"));
            kept = Some(once);
            Ok(())
        })?;
        let other = Graph::capture(&context, |captured| {
            let kept = kept.take().expect("it was made");
            let refused = refusal(kept.if_then(captured, |_| Ok(())));
            assert!(refused.starts_with("the condition is of another graph"), "{refused}");
            Ok(())
        })?;
        assert_eq!(other.node_count()?, 0);
        drop((step, fill));
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [4; 10]);
        // CUDA does not copy such a graph, and allows only one executable of it.
        for refused in [graph.instantiate().map(drop), Graph::capture(&context, |to| graph.include(to)).map(drop)] {
            assert!(is_unsupported(&refused), "{refused:?}");
        }
        let unused = Graph::capture(&context, |captured| Condition::new(captured, 1).map(drop));
        assert!(refusal(unused).contains("no operation"));
        Ok(())
    }
}

fn is_unsupported<R>(result: &Result<R>) -> bool {
    matches!(result, Err(Error::Driver { code: sys::CUDA_ERROR_NOT_SUPPORTED, .. }))
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_graph_that_cannot_be_included_leaves_nothing_behind() -> Result<()> {
        let (context, stream) = one_stream()?;
        let host = PinnedBuffer::from_slice(&context, &[7u32; 10])?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(10)?, stream.alloc_zeroed::<u32>(10)?);
        let child = Graph::capture(&context, |stream| {
            stream.upload(&host, &mut x)?;
            Condition::new(stream, 1)?.if_then(stream, |body| body.fill(&mut x, 1))
        })?;
        let mut work = |stream: &Stream| {
            let refused = child.include(stream);
            assert!(is_unsupported(&refused), "{refused:?}");
            stream.fill(&mut y, 3)
        };
        for graph in [Graph::capture(&context, &mut work)?, Graph::capture_by_access(&context, &mut work)?] {
            assert_eq!(graph.node_count()?, 1);
            // No memory has to be lent.
            graph.instantiate()?.launch(&stream)?;
        }
        assert_eq!(stream.download_vec(&y)?, [3; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_body_that_fails_takes_the_graph_with_it() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let mut fails = |captured: &Stream| {
            let once = Condition::new(captured, 1)?;
            once.if_then(captured, |body| {
                body.fill(&mut x, 1)?;
                body.synchronize()
            })
        };
        let ignored = Graph::capture(&context, |captured| {
            not_captured(fails(captured), "cuStreamSynchronize");
            Ok(())
        });
        assert!(refusal(ignored).contains("not complete"));
        let mut graph = Graph::capture(&context, |_| Ok(()))?;
        not_captured(graph.extend(fails), "cuStreamSynchronize");
        assert!(matches!(graph.instantiate(), Err(Error::GivenUp { .. })));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            Graph::capture(&context, |captured| {
                Condition::new(captured, 1)?.if_then(captured, |_| panic!("on purpose"))
            })
        }));
        assert!(panicked.is_err());
        stream.fill(&mut x, 2)?;
        assert_eq!(stream.download_vec(&x)?, [2; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_an_executable_with_conditions_is_updated() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(10)?, stream.alloc_zeroed::<u32>(10)?);
        let of = |x: &mut DeviceBuffer<u32>, value: u32, twice: bool| {
            Graph::capture(&context, |stream| {
                Condition::new(stream, 1)?.if_then(stream, |body| {
                    body.fill(&mut *x, value)?;
                    if twice { body.fill(x, value) } else { Ok(()) }
                })
            })
        };
        let (first, second, longer) = (of(&mut x, 1, false)?, of(&mut y, 2, false)?, of(&mut x, 3, true)?);
        let mut exec = first.instantiate()?;
        match exec.update(&longer) {
            Err(Error::GraphUpdate(it)) => {
                assert_eq!(it.why, sys::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
            }
            other => panic!("{other:?}"),
        }
        exec.update(&second)?;
        drop((first, second, longer));
        exec.launch(&stream)?;
        assert_eq!((stream.download_vec(&x)?, stream.download_vec(&y)?), (vec![0; 10], vec![2; 10]));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4, cudadevrt;
    fn l_an_updated_executable_sets_the_conditions_of_its_graph() -> Result<()> {
        let (context, stream) = one_stream()?;
        let decides = kernels::conditions(&context)?.function("decide")?;
        let yes = stream.upload_new(&[1])?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(10)?, stream.alloc_zeroed::<u32>(10)?);
        let of = |x: &mut DeviceBuffer<u32>| {
            Graph::capture(&context, |stream| {
                let is_set = Condition::new(stream, 0)?;
                decide(stream, &decides, &yes, &is_set)?;
                is_set.if_then(stream, |body| body.fill(x, 7))
            })
        };
        let (first, second) = (of(&mut x)?, of(&mut y)?);
        let mut exec = first.instantiate()?;
        exec.update(&second)?;
        drop((first, second));
        exec.launch(&stream)?;
        assert_eq!((stream.download_vec(&x)?, stream.download_vec(&y)?), (vec![0; 10], vec![7; 10]));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_the_captures_own_streams_rest_while_a_body_is_captured() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(10)?, stream.alloc_zeroed::<u32>(10)?);
        let function = kernels::get(&context, "add_one")?;
        let fill = Graph::capture(&context, |stream| stream.fill(&mut y, 4))?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let graph = Graph::capture([&context, &context], |[one, two]| {
            let (once, inner) = (Condition::new(one, 1)?, Condition::new(one, 1)?);
            let last = Condition::new(one, 1)?;
            let mut refused = |streams: &[&Stream]| {
                for stream in streams {
                    let done = [
                        stream.fill(&mut y, 9),
                        add_one(stream, &function, &mut y),
                        fill.include(stream),
                        stream.launch_host_func_each(|| ()),
                        event.record(stream),
                        // SAFETY: no other code enqueues anything.
                        unsafe { y.note_use(stream, Access::Write) },
                        Condition::new(stream, 1).map(drop),
                        last.if_then(stream, |_| panic!("captured")),
                    ];
                    for done in done {
                        let why = refusal(done);
                        assert!(why.contains("use the stream that it was passed"), "{why}");
                    }
                }
            };
            once.if_then(one, |body| {
                refused(&[one, two]);
                body.fill(&mut x, 1)?;
                inner.if_then(body, |innermost| {
                    refused(&[one, two, body]);
                    innermost.fill(&mut x, 2)
                })?;
                add_one(body, &function, &mut x)
            })?;
            last.if_then(one, |body| add_one(body, &function, &mut x))?;
            two.fill(&mut y, 3)
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!((stream.download_vec(&x)?, stream.download_vec(&y)?), (vec![4; 10], vec![3; 10]));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_condition_that_an_extension_leaves_gives_the_graph_up() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let mut graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let failed = graph.extend(|stream| {
            let _unused = Condition::new(stream, 1)?;
            stream.synchronize()
        });
        not_captured(failed, "cuStreamSynchronize");
        assert!(matches!(graph.instantiate(), Err(Error::GivenUp { .. })));
        Ok(())
    }
}
