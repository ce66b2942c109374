//! What the program adds to the command line: commands that need more than a node's API, and how classes make images.

use super::Session;
use super::folder::Folder;
use super::stop::{Result, Stop};
use clap::{ArgMatches, Args, Command};
use manifest::{Function, Isolation};
use problem::Code;
use std::path::Path;

/// All of it.
#[derive(Default)]
pub struct Brought {
    pub commands: Vec<Extra>,
    pub options: Vec<ExtraOption>,
    pub images: Images,
    /// The format in which this program keeps state.
    pub state_format: &'static str,
    /// Lines of `-h`, which shows commands by what they are for.
    pub groups: Vec<&'static str>,
}

/// A command that is run as its arguments say.
pub trait Run: Args {
    fn run(self, session: &Session) -> Result;
}

/// A command beside those of this crate.
pub struct Extra {
    pub name: &'static str,
    pub about: &'static str,
    /// The command it is listed after; none: it is the first.
    pub after: Option<&'static str>,
    /// For its `--help`; none of a command that nobody types.
    pub examples: &'static [&'static str],
    pub augment: fn(Command) -> Command,
    pub run: fn(&ArgMatches, &Session) -> Result,
}

impl Extra {
    pub fn new<T: Run>(
        name: &'static str,
        about: &'static str,
        after: Option<&'static str>,
        examples: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            about,
            after,
            examples,
            augment: T::augment_args,
            run: |matches, session| read::<T>(matches)?.run(session),
        }
    }

    pub(super) fn command(&self) -> Command {
        (self.augment)(Command::new(self.name)).about(self.about).hide(self.examples.is_empty())
    }

    pub(super) fn run(&self, matches: &ArgMatches, session: &Session) -> Result {
        (self.run)(matches, session)
    }
}

/// Options for a command of this crate.
pub struct ExtraOption {
    pub command: &'static str,
    pub augment: fn(Command) -> Command,
    /// Does what they ask for in the place of the command; none if they are not there.
    pub run: fn(&ArgMatches, &Session) -> Option<Result>,
}

/// The arguments of a command that clap has read already.
pub fn read<T: Args>(matches: &ArgMatches) -> Result<T> {
    T::from_arg_matches(matches).map_err(|error| Stop::new(Code::Usage, error.to_string()))
}

/// How an isolation class makes an image of the files of a function.
pub trait MakesImages: Sync {
    /// The image of what is at `inner` in `folder`, out of which no link may lead.
    ///
    /// # Errors
    /// No image can be made of it.
    fn image(&self, folder: &Folder, inner: &Path, function: &Function) -> Result<Vec<u8>>;

    /// Whether `path` is what an image is made of, and no image.
    fn is_source(&self, path: &Path) -> bool;

    /// What to do where there is nothing to make it of.
    fn hint(&self) -> &'static str;

    fn media_type(&self) -> &'static str;
}

/// The classes whose images are no components.
#[derive(Clone, Default)]
pub struct Images(pub Vec<(Isolation, &'static dyn MakesImages)>);

impl Images {
    pub fn of(&self, isolation: Isolation) -> Option<&'static dyn MakesImages> {
        self.0.iter().find(|(of, _)| *of == isolation).map(|(_, makes)| *makes)
    }

    pub fn is_source(&self, path: &Path) -> bool {
        path.is_dir() || self.0.iter().any(|(_, makes)| makes.is_source(path))
    }
}
