//! What Loadline believes, and how one log entry changes it. Pure.
