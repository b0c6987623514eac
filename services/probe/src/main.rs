#![no_std]
#![no_main]

rt::entry!(main);

fn main(_task: rt::Task) -> ! {
    rt::exit_clean()
}
