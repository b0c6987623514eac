//! The task graph as a picture: the chain of tasks in a row, those that everybody talks with as bars below and above.
//!
//! Written by hand because layout programs place such a graph well only by luck; the same input gives the same bytes.

use super::report::Service;
use builder::plan::{Link, Plan};
use std::fmt::Write;

const BOX: (i32, i32) = (168, 118);
const GAP: i32 = 176;
const MARGIN: i32 = 24;
const BAR: i32 = 62;
/// Room between bars and row, where their lines are.
const SPACE: i32 = 58;

const STYLE: &str = "\
text { font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2933; }
.name { font-size: 17px; font-weight: 600; }
.fact { font-size: 11.5px; fill: #52606d; }
.link { font-size: 12.5px; font-weight: 600; }
.pool { font-size: 11px; fill: #52606d; }
.task { fill: #f5f9ff; stroke: #2f6db5; stroke-width: 1.6; }
.bar { fill: #fbf7ee; stroke: #b98a2f; stroke-width: 1.4; }
.kernel { fill: #eef1f4; stroke: #7b8794; stroke-width: 1.4; }
.wire { stroke: #2f6db5; stroke-width: 1.6; fill: none; }
.thin { stroke: #b98a2f; stroke-width: 1.2; fill: none; }
.dash { stroke-dasharray: 4 4; }";

struct Picture<'p> {
    plan: &'p Plan,
    svg: String,
}

/// `kernel_text`: bytes of the kernel's code.
pub fn svg(plan: &Plan, services: &[Service], kernel_text: Option<u64>) -> String {
    let others = services.len() - 1;
    let hub = |i: &usize| *i > 0 && plan.tasks[*i].neighbours.count_ones() as usize == others && others > 2;
    let hubs: Vec<usize> = (1..services.len()).filter(hub).collect();
    let row: Vec<usize> = (1..services.len()).filter(|i| !hubs.contains(i)).collect();

    let count = row.len().max(1) as i32;
    let width = 2 * MARGIN + count * BOX.0 + (count - 1) * GAP;
    let top = MARGIN + BAR + SPACE;
    let bars = top + BOX.1 + SPACE;
    let height = bars + (hubs.len() as i32 + 1) * (BAR + 14) + MARGIN - 14;

    let mut picture = Picture { plan, svg: String::new() };
    picture.open(width, height);
    picture.bar(
        "bar",
        MARGIN,
        width,
        &services[0],
        "starts, seals and restarts the tasks; reboots the machine",
    );
    for (n, &task) in row.iter().enumerate() {
        let x = left(n);
        picture.line("thin dash", (x + BOX.0 / 2, MARGIN + BAR), (x + BOX.0 / 2, top), (false, true));
        if !hubs.is_empty() {
            picture.line("thin", (x + BOX.0 / 2, top + BOX.1), (x + BOX.0 / 2, bars), (false, true));
        }
        picture.task(x, top, &services[task]);
    }
    picture.chain(&row, top);
    for (n, &hub) in hubs.iter().enumerate() {
        picture.bar(
            "bar",
            bars + n as i32 * (BAR + 14),
            width,
            &services[hub],
            "one link from each task, the supervisor's too",
        );
    }
    picture.kernel(bars + hubs.len() as i32 * (BAR + 14), width, kernel_text);
    picture.svg.push_str("</svg>\n");
    picture.svg
}

/// Left edge of the `n`th box of the row.
fn left(n: usize) -> i32 {
    MARGIN + n as i32 * (BOX.0 + GAP)
}

impl Picture<'_> {
    fn open(&mut self, width: i32, height: i32) {
        let marker = |id: &str, colour: &str| {
            format!(
                "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
                 orient=\"auto-start-reverse\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"{colour}\"/></marker>\n"
            )
        };
        let (blue, brown) = (marker("blue", "#2f6db5"), marker("brown", "#b98a2f"));
        self.write(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"Tasks and links of an urMQTT image\">\n<style>\n{STYLE}\n</style>\n\
             <defs>\n{blue}{brown}</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        ));
    }

    fn write(&mut self, text: std::fmt::Arguments) {
        self.svg.write_fmt(text).expect("a string takes everything");
    }

    fn text(&mut self, class: &str, (x, y): (i32, i32), text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.write(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>\n"
        ));
    }

    fn rect(&mut self, class: &str, (x, y): (i32, i32), (w, h): (i32, i32)) {
        self.write(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"9\"/>\n"
        ));
    }

    /// `arrows`: at the start, at the end.
    fn line(&mut self, class: &str, from: (i32, i32), to: (i32, i32), arrows: (bool, bool)) {
        let colour = if class.starts_with("wire") { "blue" } else { "brown" };
        let mark =
            |on: bool, at: &str| if on { format!(" marker-{at}=\"url(#{colour})\"") } else { String::new() };
        self.write(format_args!(
            "<path class=\"{class}\" d=\"M{} {} L{} {}\"{}{}/>\n",
            from.0,
            from.1,
            to.0,
            to.1,
            mark(arrows.0, "start"),
            mark(arrows.1, "end")
        ));
    }

    fn task(&mut self, x: i32, y: i32, service: &Service) {
        let middle = x + BOX.0 / 2;
        self.rect("task", (x, y), BOX);
        self.text("name", (middle, y + 27), &service.name);
        for (n, fact) in facts(service).iter().enumerate() {
            self.text("fact", (middle, y + 49 + 17 * n as i32), fact);
        }
    }

    fn bar(&mut self, class: &str, y: i32, width: i32, service: &Service, role: &str) {
        self.rect(class, (MARGIN, y), (width - 2 * MARGIN, BAR));
        self.text("name", (width / 2, y + 25), &service.name);
        let facts = facts(service).join("  ·  ");
        self.text("fact", (width / 2, y + 46), &format!("{role}  ·  {facts}"));
    }

    fn kernel(&mut self, y: i32, width: i32, text: Option<u64>) {
        self.rect("kernel", (MARGIN, y), (width - 2 * MARGIN, BAR));
        self.text("name", (width / 2, y + 25), "microkernel");
        let size = text.map_or(String::new(), |t| format!("  ·  {} KiB of code", t.div_ceil(1024)));
        let role = "address spaces, priorities with budgets, one-bit signals, interrupts as signals, faults";
        self.text("fact", (width / 2, y + 46), &format!("{role}{size}"));
    }

    /// Links between tasks of the row: side by side as arrows, others as arcs beneath their boxes' tops.
    fn chain(&mut self, row: &[usize], top: i32) {
        for link in &self.plan.links {
            let place = |task: u16| row.iter().position(|&t| t == task as usize);
            let (Some(a), Some(b)) = (place(link.tasks[0]), place(link.tasks[1])) else { continue };
            let (first, second) = (a.min(b), a.max(b));
            let y = top + BOX.1 / 2 + 6;
            let (from, to) = (left(first) + BOX.0, left(second));
            if second - first == 1 {
                self.line("wire", (from + 3, y), (to - 3, y), (true, true));
                self.labels((from + to) / 2, y, link, a < b);
            } else {
                let (low, middle) = (top + BOX.1 + 26, (from + to) / 2);
                let (from, to) = (left(first) + BOX.0 / 2 + 20, left(second) + BOX.0 / 2 - 20);
                self.write(format_args!(
                    "<path class=\"wire\" d=\"M{from} {} C{from} {low} {to} {low} {to} {}\" \
                     marker-start=\"url(#blue)\" marker-end=\"url(#blue)\"/>\n",
                    top + BOX.1,
                    top + BOX.1
                ));
                self.text("link", (middle, low - 4), &link.names[0]);
            }
        }
    }

    /// The link's name above its arrow; its pools, with the direction in which their bytes go.
    fn labels(&mut self, middle: i32, y: i32, link: &Link, a_is_left: bool) {
        self.text("link", (middle, y - 30), &link.names[0]);
        for (side, at) in [(0, y - 12), (1, y + 20)] {
            let Some(pool) = link.pools[side] else { continue };
            let name = &self.plan.regions[pool.region].name;
            let text = format!("{name}: {} × {} B", pool.buffers, pool.size);
            let text = if (side == 0) == a_is_left { format!("{text} →") } else { format!("← {text}") };
            self.text("pool", (middle, at), &text);
        }
    }
}

fn facts(service: &Service) -> [String; 4] {
    let code = service.code.map_or("not built".into(), |c| {
        format!("{} KiB of code", (c.text_bytes + c.rodata_bytes).div_ceil(1024))
    });
    let heap = format!("{} heap", short(service.heap_bytes));
    let unsafe_blocks = service.unsafe_blocks().0;
    [
        format!("priority {}", service.priority),
        code,
        heap,
        format!("{} capabilities, {unsafe_blocks} unsafe", service.capabilities.len()),
    ]
}

fn short(n: u64) -> String {
    match n >> 20 {
        0 => format!("{} KiB", n >> 10),
        mib => format!("{mib} MiB"),
    }
}
