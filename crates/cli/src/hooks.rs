//! What a program that tests this one may change about it. `loadline` itself changes nothing.

use std::fmt;

use loadline_server::World;

/// Changes the world that a node lives in, before it starts.
#[derive(Default)]
pub struct Hooks {
    world: Option<Box<dyn Fn(World) -> World>>,
}

impl Hooks {
    pub fn with_world(change: impl Fn(World) -> World + 'static) -> Hooks {
        Hooks { world: Some(Box::new(change)) }
    }

    pub(crate) fn world(&self, world: World) -> World {
        match &self.world {
            Some(change) => change(world),
            None => world,
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("world", &self.world.is_some()).finish()
    }
}
